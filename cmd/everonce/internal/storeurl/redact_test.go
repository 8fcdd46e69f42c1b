package storeurl

import (
	"errors"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing to hide":                                          "nothing to hide",
		"postgres://host/db":                                       "postgres://host/db",
		"postgres://user@host/db":                                  "postgres://user@host/db",
		"postgres://user:pass@host/db":                             "postgres://user:xxxxx@host/db",
		"postgres://user:p@ss:w/rd@host/db":                        "postgres://user:xxxxx@host/db",
		"postgres://:pass@host/db":                                 "postgres://:xxxxx@host/db",
		`parse "postgres://u:p@h:x/d": invalid port`:               `parse "postgres://u:xxxxx@h:x/d": invalid port`,
		"postgres://host/db?password=pass&sslmode=no":              "postgres://host/db?password=xxxxx&sslmode=no",
		"host=h password=pass user=u":                              "host=h password=xxxxx user=u",
		"host=h PASSWORD = 'pa ss' user=u":                         "host=h PASSWORD = xxxxx user=u",
		"sslpassword=pass":                                         "sslpassword=xxxxx",
		"m://h/d?authMechanismProperties=AWS_SESSION_TOKEN:pass":   "m://h/d?authMechanismProperties=AWS_SESSION_TOKEN:xxxxx",
		"m://h/d?authMechanismProperties=aws_session_token%3Apass": "m://h/d?authMechanismProperties=aws_session_token%3Axxxxx",
		"to https://a.example and mail me@b.example":               "to https://a.example and mail me@b.example",
		"dial tcp 127.0.0.1:5432: connection refused":              "dial tcp 127.0.0.1:5432: connection refused",
		"sqlite:payments.db":                                       "sqlite:payments.db",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSecretsAreFound: in every form in which an error may repeat them.
func TestSecretsAreFound(t *testing.T) {
	t.Parallel()
	secrets := secretsOf("postgres://user:p%40ss%2Fword@host/db?sslpassword=hush&password=hush2")
	inner := errors.New("p@ss/word, p%40ss%2Fword, hush and hush2 do not fit")
	err := error(&secretError{err: inner, secrets: secrets})
	for _, secret := range []string{"p@ss", "p%40ss", "hush"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q tells %q", err, secret)
		}
	}
	if !errors.Is(err, inner) {
		t.Error("the error is lost")
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"sqlite:payments.db":                           "sqlite:payments.db",
		"postgres://user:p@ss@host:5432/db?password=x": "postgres://host:5432/db",
		"postgresql://host/db":                         "postgresql://host/db",
		"postgresql://host/db?password=p@ss":           "postgresql://xxxxx",
		"host=h password=x":                            "?",
	} {
		if got := Name(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestShown: a setting that names no store may be anything, what was meant for another variable too.
func TestShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"memory:":                            "memory:",
		"sqlite:/data/u:p@x.db":              "sqlite:/data/u:p@x.db",
		"postgres://host/db":                 "postgres://host/db",
		"postgres://user@host/db":            "postgres://user@host/db",
		"postgres://user:pa ss@host/db?a=b":  "postgres://user:xxxxx@host/db?a=b",
		"redis://:p@ss@host/0?password=x":    "redis://:xxxxx@host/0?password=xxxxx",
		"user:pass@host/db":                  "xxxxx",
		"redis://h:6379/0?password=p@ssw0rd": "redis://xxxxx",
		"postgres://host/db?a=b&password=pa ss word&c=d":              "postgres://host/db?a=b&password=xxxxx&c=d",
		`postgres://host/db?sslpassword=a"b`:                          "postgres://host/db?sslpassword=xxxxx",
		`redis://h/?password='a'b`:                                    "redis://h/?password=xxxxx",
		"mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:ab c": "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:xxxxx",
		"redis:user:pass@host":                                        "xxxxx",
		"host=h user=u password=pa ss":                                "xxxxx",
		"postgres ://user:pass@host":                                  "xxxxx",
	} {
		if got := Shown(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A text that is not the URL of a service may hold a password anywhere.
func TestShownUpstream(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "http://host:3000": "http://host:3000", "https://host/": "https://host/", "unix:/run/app@1.sock": "unix:/run/app@1.sock", "unix:///run/app.sock": "unix:///run/app.sock",
		"unix:user:hunter2@host:80": "xxxxx", "unix://user:hunter2@host/": "xxxxx", "unix:/run/app.sock?hunter2": "xxxxx", "unix:/run/app.sock#hunter2": "xxxxx",
		"http://user:pa ss@host": "xxxxx", "user:hunter2@host:80": "xxxxx", "http://host/?token=hunter2": "xxxxx", "http://u:p@host": "xxxxx", "hunter2": "xxxxx",
		"http://ops:12/hunter2@host:80": "xxxxx", "http://ops:/hunter2@host": "xxxxx", "http://ops:12#hunter2@host": "xxxxx", "http://host/#hunter2": "xxxxx",
	} {
		if got := ShownUpstream(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
