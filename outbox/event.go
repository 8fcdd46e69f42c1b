package outbox

import (
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Event is a message that is published after its transaction has committed.
type Event struct {
	// ID identifies the event wherever and however often it is published: consumers recognise it by this. At most 255
	// bytes. Default: within an operation ([everonce.AttemptFrom] finds it), a downstream key of the operation, so that it
	// makes the same ID when it runs again; elsewhere a UUID of version 7.
	ID string
	// Topic is the topic that the event is published to, at most 255 bytes. Required.
	Topic string
	// Key, if set, orders the event among the events with the same topic and key. At most 255 bytes.
	Key string
	// Type says what happened: "order.placed". At most 255 bytes.
	Type string
	// ContentType is the payload's. Default "application/json".
	ContentType string
	// Headers are sent with the event, for example a trace context. At most 64 KiB in all.
	Headers map[string]string
	// Payload is the event's body. See [Options.MaxPayload].
	Payload []byte
	// NotBefore, if set, is the earliest time at which it is published, by the database's clock. Before the year 10000.
	NotBefore time.Time

	// CreatedAt is when the event was inserted. Attempts is how often a relay claimed it, this time included. A relay sets
	// both for a [Publisher]; [Outbox.Publish] ignores them.
	CreatedAt time.Time
	Attempts  int
}

const (
	defaultMaxPayload = 1 << 20
	jsonType          = "application/json"
)

// validate returns an error if the event cannot be stored or published.
func (e *Event) validate(maxPayload int) error {
	if e.Topic == "" {
		return fmt.Errorf("outbox: %w: the event has no topic", everonce.ErrInvalidArgument)
	}
	err := sqlqueue.CheckTexts("outbox", "event", []sqlqueue.Text{
		{Name: "ID", Is: e.ID}, {Name: "topic", Is: e.Topic}, {Name: "key", Is: e.Key}, {Name: "type", Is: e.Type}, {Name: "content type", Is: e.ContentType},
	}...)
	if err != nil {
		return err
	}
	if e.NotBefore.Year() > 9999 {
		return fmt.Errorf("outbox: %w: the event's NotBefore is after the year 9999", everonce.ErrInvalidArgument)
	}
	if _, unnamed := e.Headers[""]; unnamed {
		return fmt.Errorf("outbox: %w: a header of the event has no name", everonce.ErrInvalidArgument)
	}
	if err := sqlqueue.CheckHeaders("outbox", "event", e.Headers); err != nil {
		return err
	}
	if len(e.Payload) > maxPayload {
		return fmt.Errorf("outbox: %w: the event's payload has %d bytes; Options.MaxPayload allows %d", everonce.ErrTooLarge, len(e.Payload), maxPayload)
	}
	return nil
}
