package jsonform

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Pointer names one place of a JSON text (RFC 6901).
type Pointer struct {
	text string
	path []string
}

// ParsePointer reports whether text is a JSON pointer to a field, like "/order/id".
func ParsePointer(text string) (p Pointer, ok bool) {
	if text == "" || !jsontext.Pointer(text).IsValid() {
		return p, false
	}
	return Pointer{text, slices.Collect(jsontext.Pointer(text).Tokens())}, true
}

func (p Pointer) String() string { return p.text }

// ErrNotOneValue is the error of a text in which two readers could find two different values at one place.
var ErrNotOneValue = errors.New("the body is not one JSON value without repeated names")

// Find returns the first token of the value that p points to in a text. found is false if there is nothing at p. The
// error is [ErrNotOneValue] if the text is not JSON, has a name twice in one object, or continues after its end.
func (p Pointer) Find(text []byte) (value jsontext.Token, found bool, err error) {
	if !jsontext.Value(text).IsValid() {
		return value, false, ErrNotOneValue
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true)) // IsValid has refused them
	if !seek(d, p.path) {
		return value, false, nil
	}
	if value, err = d.ReadToken(); err != nil {
		return value, false, err
	}
	return value.Clone(), true, nil
}

// seek reads valid JSON up to the value at the path, and reports whether there is one.
func seek(d *jsontext.Decoder, path []string) bool {
	for _, name := range path {
		isArray := d.PeekKind() == jsontext.KindBeginArray
		if !isArray && d.PeekKind() != jsontext.KindBeginObject {
			return false
		}
		_, err := d.ReadToken()
		for i := 0; ; i++ {
			at := strconv.Itoa(i)
			if end := d.PeekKind(); err != nil || end == jsontext.KindEndObject || end == jsontext.KindEndArray {
				return false
			}
			if !isArray {
				token, failed := d.ReadToken()
				if failed != nil {
					return false
				}
				at = token.String()
			}
			if at == name {
				break
			}
			err = d.SkipValue()
		}
	}
	return true
}
