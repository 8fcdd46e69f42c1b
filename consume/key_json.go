package consume

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSONPointer takes a value of the body (RFC 6901: "/order/id"), which must be a string or an integer; of a number
// the digits count, however long. A body that is no JSON, that has a name twice in one object, or that goes
// on behind its end gives no key: two readers could find two of them in it.
func JSONPointer(pointer string) Key {
	if p := jsontext.Pointer(pointer); pointer == "" || !p.IsValid() {
		return func(*Message) (string, error) {
			return "", noKey("%q is no JSON pointer to a value inside of the body", pointer)
		}
	}
	return func(m *Message) (string, error) { return valueAt(m.Body, jsontext.Pointer(pointer)) }
}

// valueAt returns the text of a string or an integer in a JSON text, all of which is checked.
func valueAt(text []byte, at jsontext.Pointer) (value string, err error) {
	found := false
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for ended := false; ; {
		token, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && ended:
			if !found {
				return "", noKey("the body has nothing at %q", string(at))
			}
			return value, nil
		case err != nil || ended:
			return "", noKey("the body is not one JSON value without repeated names")
		}
		ended = d.StackDepth() == 0
		if isName(d) || d.StackPointer() != at || token.Kind() == jsontext.KindEndObject || token.Kind() == jsontext.KindEndArray {
			continue
		}
		if value, err = textOf(token); err != nil {
			return "", noKey("what the body has at %q %v", string(at), err)
		}
		found = true
	}
}

// isName reports whether the token that was read last is a name in an object.
func isName(d *jsontext.Decoder) bool {
	kind, length := d.StackIndex(d.StackDepth())
	return kind == jsontext.KindBeginObject && length%2 == 1
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

// CloudEvent takes source and id of a CloudEvent, which together name one event: from its headers (ce-id, ce_id or
// cloudEvents:id, as the bindings to HTTP, Kafka and AMQP write them), or, where the content type is
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

// joined is a Composite without a name.
func joined(first, second Key) Key {
	return func(m *Message) (string, error) {
		a, err := first(m)
		if err != nil {
			return "", err
		}
		b, err := second(m)
		if err != nil {
			return "", err
		}
		return escapePart(a) + ":" + escapePart(b), nil
	}
}
