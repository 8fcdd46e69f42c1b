package client

import (
	"fmt"

	"github.com/dunglas/httpsfv"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// fieldOf returns the header field's value for a key: a String of RFC 9651, or the raw key. A key that a server could
// read as another one, or as two, is refused. The error wraps [ErrInvalidKey] and does not quote the key.
func fieldOf(key string, raw bool) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > wire.MaxKeyLen:
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidKey, wire.MaxKeyLen)
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c < ' ' || c > '~':
			return "", fmt.Errorf("%w: it contains a byte that is not printable ASCII", ErrInvalidKey)
		case raw && (c == ' ' || c == ',' || c == '"' && i == 0):
			return "", fmt.Errorf("%w: a raw key must not contain a blank or a comma, or begin with a quotation mark", ErrInvalidKey)
		}
	}
	if raw {
		return key, nil
	}
	return httpsfv.Marshal(httpsfv.NewItem(key))
}
