package outbox

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// ToConsumer returns a publisher to a consumer in this process: the consumer handles each event once, by the event's
// ID. At most parallel events are handled at the same time. An event that becomes a dead letter of the consumer is set
// aside.
func ToConsumer(c *consume.Consumer, parallel int) Publisher {
	return One(parallel, func(ctx context.Context, e *Event) error {
		v := c.Handle(ctx, e.Message())
		switch v.Disposition {
		case consume.Ack:
			return nil
		case consume.SetAside:
			return everonce.Permanent(string(v.Death.Reason), fmt.Errorf("outbox: the consumer refused the event (%s): %w", v.Death.Reason, v.Err), nil)
		case consume.Hold:
			return fmt.Errorf("%w: %w", ErrUnavailable, v.Err)
		}
		return v.Err
	})
}

// Message returns the event as a message that a consumer receives, whose ID is the event's.
func (e *Event) Message() *consume.Message {
	said := envelope.Read(e.ContentType, e.Headers, e.Payload).Or(envelope.Envelope{Type: e.Type, Source: e.Topic, Key: e.Key, Time: e.CreatedAt})
	return &consume.Message{
		ID: e.ID, Type: said.Type, EventSource: said.Source, OrderKey: said.Key, Time: said.Time,
		Source: e.Topic, Headers: e.Headers, ContentType: e.ContentType, Body: e.Payload,
		Deliveries: e.Attempts, Retries: max(e.Attempts-1, 0), Redelivered: e.Attempts > 1, First: e.CreatedAt,
	}
}
