package rabbitonce

import (
	"math"
	"slices"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/consume/internal/event"
	"github.com/everonce/everonce/internal/envelope"
)

// messageOf returns the message of a delivery, as its producer sent it, even if the delivery is a copy.
func messageOf(d *amqp.Delivery, queue string) *consume.Message {
	m := &consume.Message{
		ID:              producerID(d),
		Source:          queue,
		Subject:         d.RoutingKey,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		Body:            d.Body,
		Deliveries:      deliveries(d),
		Redelivered:     d.Redelivered,
		Retries:         countOf(d.Headers, copies.Retries),
		First:           first(d),
	}
	if key, ok := d.Headers[headerRoutingKey].(string); ok && maybeCopy(d) {
		m.Subject = key
	}
	if source := stringOf(d.Headers, copies.Queue); source != "" {
		m.Source = source
	} else if source = stringOf(d.Headers, "x-first-death-queue"); source != "" {
		m.Source = source
	}
	for name, value := range d.Headers {
		if copies.Ours(name) || brokerHeaders[name] {
			continue
		}
		if text, ok := textOf(value); ok {
			if m.Headers == nil {
				m.Headers = make(map[string]string, len(d.Headers))
			}
			m.Headers[name] = text
		} else {
			m.OmittedHeaders = append(m.OmittedHeaders, name)
		}
	}
	dropped, _ := d.Headers[copies.Dropped].([]any)
	for _, name := range dropped {
		name, _ := name.(string)
		if _, there := m.Headers[name]; !there && name != "" && !copies.Ours(name) {
			m.OmittedHeaders = append(m.OmittedHeaders, name)
		}
	}
	slices.Sort(m.OmittedHeaders)
	m.OmittedHeaders = slices.Compact(m.OmittedHeaders)
	event.Describe(m, properties(d))
	return m
}

// properties returns the properties of AMQP that describe an event. A timestamp has whole seconds; a time in a header
// is exact.
func properties(d *amqp.Delivery) envelope.Envelope {
	e := envelope.Envelope{Time: copies.Writable(d.Timestamp)}
	if utf8.ValidString(d.Type) {
		e.Type = d.Type
	}
	return e
}

// maybeCopy reports whether a message may be one of the package's copies, which go straight to their queue: a message
// from an exchange is not one, whatever its headers say.
func maybeCopy(d *amqp.Delivery) bool { return d.Exchange == "" }

// isDeadLetter reports whether a message is a dead letter of this package, in whichever queue it is now.
func isDeadLetter(d *amqp.Delivery) bool { return stringOf(d.Headers, copies.Reason) != "" }

// maxMessageID is the length of AMQP's longest message ID.
const maxMessageID = 255

// producerID returns the message ID that the producer set: a dead letter has the key's hash in its place. A longer ID
// than AMQP allows was not set by a producer, and no copy can have it.
func producerID(d *amqp.Delivery) string {
	if !isDeadLetter(d) {
		return d.MessageId
	}
	if id := stringOf(d.Headers, copies.MessageID); len(id) <= maxMessageID {
		return id
	}
	return ""
}

// deliveries returns how often the broker has delivered the message since it, or its copy, was published. A quorum
// queue has the number in a header, from the second delivery on.
func deliveries(d *amqp.Delivery) int {
	if n, ok := integer(d.Headers["x-delivery-count"]); ok && n >= 0 && n < math.MaxInt32 { // in a classic queue, the producer may have set it
		return int(n) + 1
	}
	if d.Redelivered {
		return 0
	}
	return 1
}

// first returns when a message was first sent, first retried, or first moved by the broker, as far as its headers say.
func first(d *amqp.Delivery) time.Time {
	if t := timeOf(d.Headers, copies.First); !t.IsZero() {
		return t
	}
	t := copies.Writable(d.Timestamp)
	if moved := deaths(d.Headers); t.IsZero() && len(moved) > 0 {
		t = moved[len(moved)-1].at
	}
	return t
}
