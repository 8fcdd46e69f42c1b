package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxKeyLen is the longest key, in bytes, that a request may carry.
const MaxKeyLen = 255

// ErrInvalidKey is wrapped by [ParseKey]'s errors.
var ErrInvalidKey = errors.New("httponce: invalid idempotency key")

// keyOf returns the key of a request; found is false where it has none.
func keyOf(h http.Header, name string) (key string, found bool, err error) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		key, err = ParseKey(values[0])
		return key, true, err
	}
	return "", true, fmt.Errorf("%w: the header is there %d times", ErrInvalidKey, len(values))
}

// ParseKey reads the value of an Idempotency-Key header. A value that begins with a quotation mark is
// read as the structured field that the draft demands (draft-ietf-httpapi-idempotency-key-header, RFC 9651: a string,
// whose parameters are ignored); any other is taken as it stands, as most clients send it: visible ASCII without
// a comma. Both spellings of a key are the same key. The error wraps [ErrInvalidKey] and never quotes the value.
func ParseKey(value string) (string, error) {
	value = strings.Trim(value, " \t")
	key := value
	if strings.HasPrefix(value, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{value})
		if err != nil {
			return "", fmt.Errorf("%w: it begins with a quotation mark and is not a structured field string", ErrInvalidKey)
		}
		s, ok := item.Value.(string)
		if !ok {
			return "", fmt.Errorf("%w: it is not a string", ErrInvalidKey)
		}
		key = s
	} else if err := checkRaw(value); err != nil {
		return "", err
	}
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyLen:
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidKey, MaxKeyLen)
	}
	return key, nil
}

func checkRaw(value string) error {
	for i := range len(value) {
		switch c := value[i]; {
		case c == ',':
			return fmt.Errorf("%w: it holds a comma, as several values would", ErrInvalidKey)
		case c <= ' ' || c >= 0x7f:
			return fmt.Errorf("%w: it holds a byte that is not visible ASCII", ErrInvalidKey)
		}
	}
	return nil
}
