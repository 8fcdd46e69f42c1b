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

// messageOf is a delivery as a consumer sees it: as its producer has sent it, whichever way it came.
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

// properties is what AMQP has properties for. A timestamp has whole seconds; one of a header is exact.
func properties(d *amqp.Delivery) envelope.Envelope {
	e := envelope.Envelope{Time: copies.Writable(d.Timestamp)}
	if utf8.ValidString(d.Type) {
		e.Type = d.Type
	}
	return e
}

// maybeCopy reports whether a message can be a copy of ours, which comes straight to its queue: what came by an exchange is none,
// whatever its headers say.
func maybeCopy(d *amqp.Delivery) bool { return d.Exchange == "" }

// buried reports whether a message is a dead letter of ours, in whichever queue it is now.
func buried(d *amqp.Delivery) bool { return stringOf(d.Headers, copies.Reason) != "" }

// maxMessageID is the longest message ID that AMQP has.
const maxMessageID = 255

// producerID is the message ID that the producer has set: a dead letter has the key's hash in its place. A longer one than
// AMQP has was never a producer's, and no copy can have it.
func producerID(d *amqp.Delivery) string {
	if !buried(d) {
		return d.MessageId
	}
	if id := stringOf(d.Headers, copies.MessageID); len(id) <= maxMessageID {
		return id
	}
	return ""
}

// deliveries is how often the broker has delivered the message since it, or its copy, was published. A quorum queue
// counts in a header, from the second delivery on.
func deliveries(d *amqp.Delivery) int {
	if n, ok := integer(d.Headers["x-delivery-count"]); ok && n >= 0 && n < math.MaxInt32 { // a classic queue keeps what a producer sends
		return int(n) + 1
	}
	if d.Redelivered {
		return 0
	}
	return 1
}

// first is when a message was first sent, first given back, or first moved by the broker, as far as anybody noted that.
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
