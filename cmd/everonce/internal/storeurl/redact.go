package storeurl

import (
	"net/url"
	"regexp"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "xxxxx"

// secretName is what a secret stands behind: the name of a parameter that is called a password, or of MongoDB's session
// token.
const secretName = `(?i)((?:password\s*=|AWS_SESSION_TOKEN(?::|%3A))\s*)`

// In text that is not parsed: whatever is between a scheme and the last "@" of the word, but for a user's
// name, and the value of such a parameter.
var (
	userinfo  = regexp.MustCompile(`(\w+://[^\s:/@]*):\S*@`)
	parameter = regexp.MustCompile(secretName + `('[^']*'|[^\s&"]+)`)
)

// Redact takes the passwords of URLs and connection strings out of a text.
func Redact(text string) string {
	text = userinfo.ReplaceAllString(text, "$1:"+redacted+"@")
	return parameter.ReplaceAllString(text, "${1}"+redacted)
}

// hide takes what is secret in a URL out of an error's text.
func hide(err error, url string) error { return &secretError{err: err, secrets: secretsOf(url)} }

// secretError hides known secrets in an error's text.
type secretError struct {
	err     error
	secrets []string
}

func (e *secretError) Error() string {
	text := e.err.Error()
	for _, s := range e.secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return Redact(text)
}

func (e *secretError) Unwrap() error { return e.err }

// Shown returns the URL of a store without passwords, for showing a configuration. It hides a text that is not such a
// URL, because that may be anything, even a password alone.
func Shown(text string) string {
	if _, err := kindOf(text, true); err != nil && text != "" {
		return redacted
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text // the URL of a file, or no URL
	}
	at, query := strings.LastIndexByte(rest, '@'), strings.IndexByte(rest, '?')
	switch {
	case query >= 0 && query < at: // the password may be in either part
		return scheme + "://" + redacted
	case at >= 0:
		if user, _, has := strings.Cut(rest[:at], ":"); has {
			rest = user + ":" + redacted + rest[at:]
		}
	}
	if head, query, has := strings.Cut(rest, "?"); has { // a value in it ends with the next "&", whatever it is made of
		rest = head + "?" + secretParameter.ReplaceAllString(query, "${1}"+redacted)
	}
	return scheme + "://" + rest
}

var secretParameter = regexp.MustCompile(secretName + `[^&]+`)

// ShownUpstream is [Shown] for the URL of a service, which has no user, no query and no fragment. It hides the text
// behind an @ that net/url finds in another part of the URL, because it may follow a password.
func ShownUpstream(text string) string {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "unix" && u.Host == "" && u.Opaque == "" && u.RawQuery == "" && u.Fragment == "" { // a path
		return text
	}
	if text != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsRune(text, '@')) {
		return redacted
	}
	return text
}
