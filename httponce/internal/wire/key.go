package wire

import (
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxKeyLen is the longest key, in bytes.
const MaxKeyLen = 255

// maxKeyField bounds what is parsed at all: the longest key with every byte of it escaped, and some room for
// parameters.
const maxKeyField = 4 * MaxKeyLen

// KeyProblem says why a value is not a key, in words that a client may read. It never contains the value. An empty one
// means no problem.
type KeyProblem string

// The problems that a key can have.
const (
	KeyEmpty      KeyProblem = "it is empty"
	KeyTooLong    KeyProblem = "it is longer than 255 bytes"
	KeyRepeated   KeyProblem = "the header appears more than once"
	KeyComma      KeyProblem = "it contains a comma, as several values would: quote a key that contains a comma"
	KeyNotVisible KeyProblem = "it contains a byte that is not visible ASCII"
	KeyNoString   KeyProblem = "it begins with a quotation mark and is not a structured field string (RFC 9651)"
	KeyRefused    KeyProblem = "this service does not accept it"
	KeyNotText    KeyProblem = "it is not a string"
	KeyCompressed KeyProblem = "the body is compressed, so the key in it cannot be read: send the body uncompressed, or the key in the header"
	KeyDiffers    KeyProblem = "it and the key in the body differ"
)

// KeyOf returns the key in a header; found is false if the header is absent. Two values are an error even if they are
// equal: it is unknown which hop added one.
func KeyOf(h http.Header, name string) (key string, found bool, p KeyProblem) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", false, ""
	case 1:
		key, p = ParseKey(values[0])
		return key, true, p
	}
	return "", true, KeyRepeated
}

// ParseKey parses the value of a key's header.
func ParseKey(value string) (key string, p KeyProblem) {
	value = strings.Trim(value, " \t")
	switch {
	case len(value) > maxKeyField:
		return "", KeyTooLong
	case strings.HasPrefix(value, `"`):
		key, p = parseQuoted(value)
	default:
		key, p = value, checkRaw(value)
	}
	switch {
	case p != "":
		return "", p
	case key == "":
		return "", KeyEmpty
	case len(key) > MaxKeyLen:
		return "", KeyTooLong
	}
	return key, ""
}

// CheckKey returns the problem of a key outside of a header. There is neither a list nor white space around it. A
// character that a header allows only in a quoted key needs no quotes here.
func CheckKey(key string) KeyProblem {
	switch {
	case key == "":
		return KeyEmpty
	case len(key) > MaxKeyLen:
		return KeyTooLong
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] >= 0x7f {
			return KeyNotVisible
		}
	}
	return ""
}

// parseQuoted reads a structured field string. The common case, without escapes and parameters, needs no allocation.
func parseQuoted(value string) (string, KeyProblem) {
	if s := value[1:]; len(s) > 0 && s[len(s)-1] == '"' && plain(s[:len(s)-1]) {
		return s[:len(s)-1], ""
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", KeyNoString
	}
	s, ok := item.Value.(string)
	if !ok {
		return "", KeyNoString
	}
	return s, ""
}

// plain reports whether s needs no escapes between quotation marks.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func checkRaw(value string) KeyProblem {
	for i := range len(value) {
		switch c := value[i]; {
		case c == ',':
			return KeyComma
		case c <= ' ' || c >= 0x7f:
			return KeyNotVisible
		}
	}
	return ""
}
