package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxKeyLen is the longest key, in bytes, that a request may carry.
const MaxKeyLen = 255

// maxKeyField bounds what is parsed at all: the longest key with every byte of it escaped, and some room for
// parameters.
const maxKeyField = 4 * MaxKeyLen

// ErrInvalidKey is wrapped by [ParseKey]'s errors.
var ErrInvalidKey = errors.New("httponce: invalid idempotency key")

// keyProblem is why a value is no key: the sentence that the client is told. It never holds the value.
type keyProblem string

const (
	keyEmpty      keyProblem = "it is empty"
	keyTooLong    keyProblem = "it is longer than 255 bytes"
	keyRepeated   keyProblem = "the header is there more than once"
	keyComma      keyProblem = "it holds a comma, as several values would: a key with a comma must be quoted"
	keyNotVisible keyProblem = "it holds a byte that is not visible ASCII"
	keyNoString   keyProblem = "it begins with a quotation mark and is not a structured field string (RFC 9651)"
	keyRefused    keyProblem = "it is no key of this service"
)

// keyProblemOf returns what a [Route.CheckKey] said of a key. A client is not told its key: not in clear, and not as %q
// writes it.
func keyProblemOf(err error, key string) keyProblem {
	if err == nil {
		return ""
	}
	text := strings.TrimSuffix(err.Error(), ".")
	if quoted := strconv.Quote(key); text == "" || strings.Contains(text, key) || strings.Contains(text, quoted[1:len(quoted)-1]) {
		return keyRefused
	}
	return keyProblem(text)
}

func (p keyProblem) err() error { return fmt.Errorf("%w: %s", ErrInvalidKey, string(p)) }

// keyOf returns the key of a request; found is false where it has none. A header that is there twice is two
// values, be they equal: nobody knows which hop added one.
func keyOf(h http.Header, name string) (key string, found bool, p keyProblem) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", false, ""
	case 1:
		key, p = parseKey(values[0])
		return key, true, p
	}
	return "", true, keyRepeated
}

// ParseKey parses the value of an Idempotency-Key header. A value that begins with a quotation mark is parsed as the
// structured field that the draft demands (draft-ietf-httpapi-idempotency-key-header, RFC 9651: a String, whose
// parameters are ignored). Any other value is taken as it is, as most clients send it: visible ASCII without a comma.
// Both spellings of a key are the same key. Letter case counts.
//
// The error wraps [ErrInvalidKey], says what is wrong, and never quotes the value.
func ParseKey(value string) (string, error) {
	key, p := parseKey(value)
	if p != "" {
		return "", p.err()
	}
	return key, nil
}

func parseKey(value string) (key string, p keyProblem) {
	value = strings.Trim(value, " \t")
	switch {
	case len(value) > maxKeyField:
		return "", keyTooLong
	case strings.HasPrefix(value, `"`):
		key, p = parseQuoted(value)
	default:
		key, p = value, checkRaw(value)
	}
	switch {
	case p != "":
		return "", p
	case key == "":
		return "", keyEmpty
	case len(key) > MaxKeyLen:
		return "", keyTooLong
	}
	return key, ""
}

// parseQuoted reads a structured field string. One without escapes and parameters, as nearly all are, is read
// here; the library reads the rest.
func parseQuoted(value string) (string, keyProblem) {
	if s := value[1:]; len(s) > 0 && s[len(s)-1] == '"' && plain(s[:len(s)-1]) {
		return s[:len(s)-1], ""
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", keyNoString
	}
	s, ok := item.Value.(string)
	if !ok {
		return "", keyNoString
	}
	return s, ""
}

// plain reports whether s stands for itself between quotation marks.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func checkRaw(value string) keyProblem {
	for i := range len(value) {
		switch c := value[i]; {
		case c == ',':
			return keyComma
		case c <= ' ' || c >= 0x7f:
			return keyNotVisible
		}
	}
	return ""
}
