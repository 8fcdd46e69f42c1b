package httponce

import (
	"errors"
	"fmt"

	"github.com/dunglas/httpsfv"
)

// transportMaxKey is the longest key that the client sends, in bytes: what servers commonly accept.
const transportMaxKey = 255

var (
	errTransportKeyEmpty = errors.New("it is empty")
	errTransportKeyLong  = fmt.Errorf("it is longer than %d bytes", transportMaxKey)
	errTransportKeyChars = errors.New("it has a character that is not visible ASCII")
	errTransportKeyRaw   = errors.New("it has a comma or starts with a quote, and is to be sent raw")
)

// transportField returns the header field's value that carries a key: a String of RFC 8941, quoted, or the
// key as it stands. What a server could read as another key, or as two, is refused: no error quotes the key.
func transportField(key string, raw bool) (string, error) {
	switch {
	case key == "":
		return "", errTransportKeyEmpty
	case len(key) > transportMaxKey:
		return "", errTransportKeyLong
	}
	for i := range len(key) {
		c := key[i]
		if c <= ' ' || c > '~' {
			return "", errTransportKeyChars
		}
		if raw && (c == ',' || c == '"' && i == 0) {
			return "", errTransportKeyRaw
		}
	}
	if raw {
		return key, nil
	}
	return httpsfv.Marshal(httpsfv.NewItem(key))
}
