package storeurl

import (
	"regexp"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "xxxxx"

// In text that is not parsed: whatever is between a scheme and the last "@" of the word, but for a user's
// name, and the value of a parameter that is called a password.
var (
	userinfo  = regexp.MustCompile(`(\w+://[^\s:/@]*):\S*@`)
	parameter = regexp.MustCompile(`(?i)(password\s*=\s*)('[^']*'|[^\s&"]+)`)
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
