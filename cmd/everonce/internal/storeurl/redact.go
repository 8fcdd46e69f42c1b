package storeurl

import (
	"regexp"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "xxxxx"

// In text that is not parsed: whatever is between a scheme and the last "@" of the word, but for a user's
// name, and the value of a parameter that is called a password, or of MongoDB's session token.
var (
	userinfo  = regexp.MustCompile(`(\w+://[^\s:/@]*):\S*@`)
	parameter = regexp.MustCompile(`(?i)(password\s*=\s*|AWS_SESSION_TOKEN(?::|%3A))('[^']*'|[^\s&"]+)`)
)

// Redact takes the passwords of URLs and connection strings out of a text.
func Redact(text string) string {
	text = userinfo.ReplaceAllString(text, "$1:"+redacted+"@")
	return parameter.ReplaceAllString(text, "${1}"+redacted)
}

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

// Shown returns the URL of a store as a configuration shows it: without passwords. What is no such URL may be anything, a password alone
// too, and is not shown.
func Shown(url string) string {
	if _, err := kindOf(url, true); err != nil && url != "" {
		return redacted
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url // that of a file, or of nothing
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, has := strings.Cut(rest[:at], ":"); has {
			rest = user + ":" + redacted + rest[at:]
		}
	}
	return Redact(scheme + "://" + rest)
}
