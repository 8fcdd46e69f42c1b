package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce"
)

// Event is a message that leaves when its transaction has committed.
type Event struct {
	// ID identifies the event wherever it is published, however often: consumers recognise it by this. At most 255 bytes.
	// Default: in the work of an operation ([everonce.AttemptFrom] finds it), a downstream key of it, so that the operation
	// makes the same ID when it runs again; elsewhere a UUID of version 7.
	ID string
	// Topic says where it goes, at most 255 bytes. Required.
	Topic string
	// Key, if set, keeps the order of the events of its topic that have the same one. At most 255 bytes.
	Key string
	// Type says what happened: "order.placed". At most 255 bytes.
	Type string
	// ContentType is the payload's. Default "application/json".
	ContentType string
	// Headers go along, such as the trace context. At most 64 KiB in all.
	Headers map[string]string
	// Payload is the event's body. See [Options.MaxPayload].
	Payload []byte
	// NotBefore, if set, is the earliest time at which it is published, by the database's clock. Before the year 10000.
	NotBefore time.Time

	// CreatedAt is when it was inserted, and Attempts how often a relay took it to publish it, this time included. A
	// [Publisher] finds them; [Outbox.Publish] takes no notice of them.
	CreatedAt time.Time
	Attempts  int
}

const (
	maxText           = 255
	maxHeaders        = 64 << 10
	defaultMaxPayload = 1 << 20
	jsonType          = "application/json"
)

// check refuses an event that could not be stored, or not be published.
func (e *Event) check(maxPayload int) error {
	if e.Topic == "" {
		return fmt.Errorf("outbox: %w: the event has no topic", everonce.ErrInvalidArgument)
	}
	for _, text := range []struct{ name, is string }{
		{"ID", e.ID}, {"topic", e.Topic}, {"key", e.Key}, {"type", e.Type}, {"content type", e.ContentType},
	} {
		switch {
		case len(text.is) > maxText:
			return fmt.Errorf("outbox: %w: the event's %s has %d bytes; %d are possible", everonce.ErrInvalidArgument, text.name, len(text.is), maxText)
		case !stores(text.is):
			return fmt.Errorf("outbox: %w: the event's %s is not UTF-8 without NUL", everonce.ErrInvalidArgument, text.name)
		}
	}
	if e.NotBefore.Year() > 9999 {
		return fmt.Errorf("outbox: %w: the event's NotBefore is after the year 9999", everonce.ErrInvalidArgument)
	}
	size := 0
	for name, value := range e.Headers {
		if size += len(name) + len(value); !stores(name) || !stores(value) || name == "" {
			return fmt.Errorf("outbox: %w: a header of the event is not UTF-8 without NUL, or has no name", everonce.ErrInvalidArgument)
		}
	}
	switch {
	case size > maxHeaders:
		return fmt.Errorf("outbox: %w: the event's headers have %d bytes; %d are possible", everonce.ErrTooLarge, size, maxHeaders)
	case len(e.Payload) > maxPayload:
		return fmt.Errorf("outbox: %w: the event's payload has %d bytes; Options.MaxPayload allows %d", everonce.ErrTooLarge, len(e.Payload), maxPayload)
	}
	return nil
}

// stores reports whether every database can keep a text.
func stores(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// headerText is the column of the headers: the same for the same headers.
func (e *Event) headerText() string {
	if len(e.Headers) == 0 {
		return ""
	}
	text, err := json.Marshal(e.Headers)
	if err != nil { // texts have none
		return ""
	}
	return string(text)
}

func readHeaders(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var headers map[string]string
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("outbox: %w: the headers of an event", everonce.ErrCorruptRecord)
	}
	return headers, nil
}
