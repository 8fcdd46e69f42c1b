package cloudeventsonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

// Mode says how a CloudEvent is sent.
type Mode uint8

// The modes.
const (
	// Structured: attributes and data are one JSON text, whose type is application/cloudevents+json.
	Structured Mode = iota + 1
	// BinaryHTTP: the payload is sent unchanged, and the attributes as headers ce-id, ce-source and so on, for packages
	// webhook and natsonce.
	BinaryHTTP
	// BinaryAMQP is the same with headers cloudEvents:id and so on, for package rabbitonce.
	BinaryAMQP
	// BinaryKafka is the same with headers ce_id and so on, for package kafkaonce.
	BinaryKafka
)

var bindings = map[Mode]envelope.Binding{BinaryHTTP: envelope.HTTP, BinaryAMQP: envelope.AMQP, BinaryKafka: envelope.Kafka}

// New returns a publisher that passes CloudEvents to next. source is their source, a URI-reference that names the
// publishing service: source and ID must be unique together. Headers are sent unchanged. An event that cannot be a
// CloudEvent is set aside. The error wraps [everonce.ErrInvalidArgument].
func New(next outbox.Publisher, source string, mode Mode) (outbox.Publisher, error) {
	if next == nil {
		return nil, fmt.Errorf("cloudeventsonce: %w: the next publisher is nil", everonce.ErrInvalidArgument)
	}
	if _, err := url.Parse(source); err != nil || source == "" {
		return nil, fmt.Errorf("cloudeventsonce: %w: the source is not a URI-reference", everonce.ErrInvalidArgument)
	}
	if mode < Structured || mode > BinaryKafka {
		return nil, fmt.Errorf("cloudeventsonce: %w: unknown mode %d", everonce.ErrInvalidArgument, mode)
	}
	return &publisher{next, source, mode}, nil
}

type publisher struct {
	next   outbox.Publisher
	source string
	mode   Mode
}

var errBehind = errors.New("cloudeventsonce: not sent: an event before it with the same key cannot be a CloudEvent")

func (p *publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	errs := make([]error, len(events))
	converted := make([]outbox.Event, 0, len(events))
	at := make([]int, 0, len(events))
	failed := map[string]bool{}
	for i := range events {
		key := events[i].Key
		if key != "" && failed[key] {
			errs[i] = errBehind
			continue
		}
		e, err := p.convert(events[i])
		if err != nil {
			errs[i], failed[key] = everonce.Permanent("not_a_cloudevent", err, nil), true
			continue
		}
		converted, at = append(converted, e), append(at, i)
	}
	if len(converted) == 0 {
		return errs
	}
	sent := p.next.Publish(ctx, converted)
	if len(sent) > 0 && len(sent) != len(converted) {
		return sent // the relay reports the wrong number
	}
	for n, err := range sent {
		errs[at[n]] = err
	}
	return errs
}

// Destination implements [outbox.Destinations] if the next publisher does.
func (p *publisher) Destination(ctx context.Context, e *outbox.Event) string {
	to, ok := p.next.(outbox.Destinations)
	if !ok {
		return ""
	}
	converted, err := p.convert(*e)
	if err != nil { // Publish returns it
		return ""
	}
	return to.Destination(ctx, &converted)
}

// convert returns the event in the form in which the next publisher sends it.
func (p *publisher) convert(e outbox.Event) (outbox.Event, error) {
	ce, err := Event(p.source, &e)
	if err != nil {
		return e, err
	}
	if p.mode == Structured {
		var text bytes.Buffer
		if err := event.WriteJson(&ce, &text); err != nil {
			return e, err
		}
		e.Payload, e.ContentType = text.Bytes(), event.ApplicationCloudEventsJSON
		return e, nil
	}
	binding := bindings[p.mode]
	headers := maps.Clone(e.Headers)
	if headers == nil {
		headers = make(map[string]string)
	}
	set := func(name, text string) {
		if text != "" {
			headers[binding.Name(name)] = binding.Value(text)
		}
	}
	set("specversion", ce.SpecVersion())
	set("id", ce.ID())
	set("source", ce.Source())
	set("type", ce.Type())
	set("subject", ce.Subject())
	set("time", envelope.TimeText(ce.Time()))
	for name := range ce.Extensions() {
		text, _ := ce.Extensions()[name].(string)
		set(name, text)
	}
	e.Headers = headers
	return e, nil
}
