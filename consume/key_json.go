package consume

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce/internal/envelope"
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
		if !jsontext.Value(m.Body).IsValid() {
			return "", noKey("the body is not one JSON value without repeated names")
		}
		d := jsontext.NewDecoder(bytes.NewBuffer(m.Body), jsontext.AllowDuplicateNames(true)) // there are none
		if !seek(d, path) {
			return "", noKey("the body has nothing at %q", pointer)
		}
		text, err := readText(d)
		if err != nil {
			return "", noKey("the value at %q %v", pointer, err)
		}
		return text, nil
	}
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

var (
	errNotText  = errors.New("is neither a string nor an integer")
	errEmpty    = errors.New("is an empty string")
	errTwoForms = errors.New("is a number that can be written in several ways")
)

// readText reads a value, which must be a string or an integer.
func readText(d *jsontext.Decoder) (string, error) {
	token, err := d.ReadToken()
	if err != nil {
		return "", err
	}
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
// cloudEvents:id, as the bindings to HTTP and NATS, Kafka and AMQP write them) or, if the content type is
// application/cloudevents+json, from the body. Headers ce-… are percent-decoded, so that an event has one key in every
// mode. A producer may send an event again under the same id.
func CloudEvent() Key {
	return func(m *Message) (string, error) {
		if envelope.IsStructured(m.ContentType) {
			return structuredEvent(m)
		}
		return binaryEvent(m)
	}
}

var (
	structuredEvent = joined(JSONPointer("/source"), JSONPointer("/id"))
	binaryEvent     = FirstOf(
		joined(percentDecoded("ce-source"), percentDecoded("ce-id")), eventHeaders("ce_"), eventHeaders("cloudEvents:"), eventHeaders("cloudEvents_"),
	)
)

func eventHeaders(prefix string) Key { return joined(Header(prefix+"source"), Header(prefix+"id")) }

// percentDecoded is [Header] of the HTTP binding.
func percentDecoded(name string) Key {
	header := Header(name)
	return func(m *Message) (string, error) {
		value, err := header(m)
		return envelope.PercentDecoded(value), err
	}
}
