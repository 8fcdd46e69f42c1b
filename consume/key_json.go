package consume

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/internal/jsonform"
)

// JSONPointer uses a value of the body (RFC 6901: "/order/id"), which must be a string or an integer. An integer may
// have any number of digits. A body gives no key if it is not JSON, has a name twice in one object, or goes on after
// its end: two readers could find two different keys in it. JSONPointer returns nil if pointer does not begin with
// "/".
func JSONPointer(pointer string) Key {
	p, ok := jsonform.ParsePointer(pointer)
	if !ok {
		return nil
	}
	return func(m *Message) (string, error) {
		value, found, err := p.Find(m.Body)
		switch {
		case err != nil:
			return "", noKey("%v", err)
		case !found:
			return "", noKey("the body has nothing at %q", pointer)
		}
		text, err := textOf(value)
		if err != nil {
			return "", noKey("the value at %q %v", pointer, err)
		}
		return text, nil
	}
}

var (
	errNotText  = errors.New("is neither a string nor an integer")
	errEmpty    = errors.New("is an empty string")
	errTwoForms = errors.New("is a number that can be written in several ways")
)

// textOf returns the text of a string or an integer.
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

// CloudEvent uses source and id of a CloudEvent, which together name one event. It reads them from the headers (ce-id,
// ce_id or cloudEvents:id, as the bindings to HTTP and NATS, Kafka and AMQP write them) or, if the content type is
// application/cloudevents+json, from the body. A producer may send an event again under the same id. An event of an
// outbox is a CloudEvent only if it is sent through package cloudeventsonce.
//
// Headers ce-… are percent-decoded, so that an event has the same key in every mode if its sender encodes them, as
// CloudEvents 1.0.2 demands. Version 2 of the Go SDK does not: if its source or id has a percent sign followed by two
// hexadecimal digits, the event has a different key in structured mode, and the ids "a%20b" and "a b" give the same
// key.
func CloudEvent() Key {
	return func(m *Message) (string, error) {
		if envelope.IsStructured(m.ContentType) {
			return structuredEvent(m)
		}
		return binaryEvent(m)
	}
}

// CloudEventMQTT is [CloudEvent] for events that came over MQTT in binary mode, whose attributes have no prefix: it
// reads the headers source and id. It gives the same key as the other bindings. It is not part of CloudEvent because
// other senders may use these names for something else.
func CloudEventMQTT() Key { return eventHeaders("") }

var (
	structuredEvent = joined(JSONPointer("/source"), JSONPointer("/id"))
	binaryEvent     = FirstOf(
		joined(percentDecoded("ce-source"), percentDecoded("ce-id")), eventHeaders("ce_"), eventHeaders("cloudEvents:"), eventHeaders("cloudEvents_"),
	)
)

func eventHeaders(prefix string) Key { return joined(Header(prefix+"source"), Header(prefix+"id")) }

// percentDecoded is [Header] for the HTTP binding.
func percentDecoded(name string) Key {
	header := Header(name)
	return func(m *Message) (string, error) {
		value, err := header(m)
		return envelope.PercentDecoded(value), err
	}
}
