package httponce

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// MaxKeyLen is the longest key, in bytes, that a request may carry.
const MaxKeyLen = wire.MaxKeyLen

// ErrInvalidKey is the error that [ParseKey] wraps.
var ErrInvalidKey = errors.New("httponce: invalid idempotency key")

// ParseKey parses the value of an Idempotency-Key header. A value that begins with a quotation mark must be a
// structured field string (RFC 9651), as draft-ietf-httpapi-idempotency-key-header requires; its parameters are
// ignored. Any other value is the key itself, as most clients send it: visible ASCII without a comma. Both spellings
// of a key are the same key. Keys are case-sensitive.
//
// The error wraps [ErrInvalidKey], says what is wrong, and never contains the value.
func ParseKey(value string) (string, error) {
	key, p := wire.ParseKey(value)
	if p != "" {
		return "", fmt.Errorf("%w: %s", ErrInvalidKey, p)
	}
	return key, nil
}

// keyProblemOf returns the problem that a [Route.CheckKey] found. The answer must not contain the key, neither in clear
// nor as %q writes it.
func keyProblemOf(err error, key string) wire.KeyProblem {
	if err == nil {
		return ""
	}
	text := strings.TrimSuffix(err.Error(), ".")
	if quoted := strconv.Quote(key); text == "" || strings.Contains(text, key) || strings.Contains(text, quoted[1:len(quoted)-1]) {
		return wire.KeyRefused
	}
	return wire.KeyProblem(text)
}
