package consume

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSONPointer uses a value of the body (RFC 6901: "/order/id"), which must be a string or an integer. An integer may
// have any number of digits. A body gives no key if it is not JSON, has a name twice in one object, or goes on
// after its end: two readers could find two different keys in it. JSONPointer returns nil if
// pointer does not begin with "/".
func JSONPointer(pointer string) Key {
	if p := jsontext.Pointer(pointer); pointer == "" || !p.IsValid() {
		return nil
	}
	path := slices.Collect(jsontext.Pointer(pointer).Tokens())
	return func(m *Message) (string, error) {
		w := walk{d: jsontext.NewDecoder(bytes.NewBuffer(m.Body))}
		switch err := w.whole(path); {
		case errors.Is(err, errNotJSON):
			return "", noKey("%v", err)
		case err != nil:
			return "", noKey("the value at %q %v", pointer, err)
		case !w.found:
			return "", noKey("the body has nothing at %q", pointer)
		}
		return w.value, nil
	}
}

// walk is the way through a JSON text, all of which is checked, to one of its values.
type walk struct {
	d     *jsontext.Decoder
	name  []byte // that was read last
	value string
	found bool
}

// whole walks through the text, which must end behind its value.
func (w *walk) whole(path []string) error {
	if err := w.to(path); err != nil {
		return err
	}
	if _, err := w.d.ReadToken(); !errors.Is(err, io.EOF) {
		return errNotJSON
	}
	return nil
}

// to walks through the next value, of which the one at the path is looked for.
func (w *walk) to(path []string) error {
	if len(path) == 0 {
		return w.take()
	}
	switch w.d.PeekKind() {
	case jsontext.KindBeginObject:
		return w.into(func(int) (bool, error) {
			name, err := w.d.ReadValue()
			if err == nil {
				w.name, err = jsontext.AppendUnquote(w.name[:0], name)
			}
			return string(w.name) == path[0], err
		}, path[1:])
	case jsontext.KindBeginArray:
		n, err := strconv.Atoi(path[0])
		if err != nil || strconv.Itoa(n) != path[0] {
			n = -1 // no place in an array
		}
		return w.into(func(i int) (bool, error) { return i == n, nil }, path[1:])
	}
	return checked(w.d.SkipValue())
}

// into walks through an object or an array. isNext reads what is before a member's value, and says whether the way leads there.
func (w *walk) into(isNext func(i int) (bool, error), path []string) error {
	if _, err := w.d.ReadToken(); err != nil {
		return errNotJSON
	}
	for i := 0; ; i++ {
		switch w.d.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			_, err := w.d.ReadToken()
			return checked(err)
		}
		next, err := isNext(i)
		switch {
		case err != nil:
			return errNotJSON
		case next:
			err = w.to(path)
		default:
			err = checked(w.d.SkipValue())
		}
		if err != nil {
			return err
		}
	}
}

// take reads the value that was looked for.
func (w *walk) take() error {
	token, err := w.d.ReadToken()
	if err != nil {
		return errNotJSON
	}
	w.found = true
	w.value, err = textOf(token)
	return err
}

var errNotJSON = errors.New("the body is not one JSON value without repeated names")

// checked says of a text that cannot be read no more than that: the library's error quotes it.
func checked(err error) error {
	if err != nil {
		return errNotJSON
	}
	return nil
}

var (
	errNotText  = errors.New("is neither a string nor an integer")
	errEmpty    = errors.New("is an empty string")
	errTwoForms = errors.New("is a number that can be written in several ways")
)

func textOf(token jsontext.Token) (string, error) {
	switch token.Kind() {
	case jsontext.KindString:
		if token.String() == "" {
			return "", errEmpty
		}
		return token.String(), nil
	case jsontext.KindNumber:
		if digits := token.String(); !strings.ContainsAny(digits, ".eE") && digits != "-0" {
			return digits, nil
		}
		return "", errTwoForms
	}
	return "", errNotText
}

// CloudEvent uses source and id of a CloudEvent, which together name one event: from its headers (ce-id, ce_id or
// cloudEvents:id, as the bindings to HTTP, Kafka and AMQP write them) or, if the content type is
// application/cloudevents+json, from the body. A producer may send an event again under the same id.
func CloudEvent() Key {
	return func(m *Message) (string, error) {
		if base, _, _ := strings.Cut(m.ContentType, ";"); strings.EqualFold(strings.TrimSpace(base), "application/cloudevents+json") {
			return structuredEvent(m)
		}
		return FirstOf(eventHeaders("ce-"), eventHeaders("ce_"), eventHeaders("cloudEvents:"), eventHeaders("cloudEvents_"))(m)
	}
}

var structuredEvent = joined(JSONPointer("/source"), JSONPointer("/id"))

func eventHeaders(prefix string) Key { return joined(Header(prefix+"source"), Header(prefix+"id")) }
