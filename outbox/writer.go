package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"unicode/utf8"
)

// line is an event as JSON. The payload is unchanged if it is JSON, a string if it is UTF-8, and base64 otherwise.
type line struct {
	ID          string            `json:"id"`
	Topic       string            `json:"topic"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type,omitempty"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers,omitempty"`
	CreatedAt   string            `json:"created_at"`
	Payload     any               `json:"payload"`
}

// WriteTo returns a publisher that writes events as lines of JSON, to see what would be published. An event is
// published when its line was written.
func WriteTo(w io.Writer) Publisher {
	var mu sync.Mutex
	return PublisherFunc(func(_ context.Context, events []Event) []error {
		mu.Lock()
		defer mu.Unlock()
		encoder := json.NewEncoder(w)
		errs := make([]error, len(events))
		for i := range events {
			e := &events[i]
			l := line{e.ID, e.Topic, e.Key, e.Type, e.ContentType, e.Headers, e.CreatedAt.Format("2006-01-02T15:04:05.000000Z"), e.Payload}
			switch {
			case e.ContentType == jsonType && json.Valid(e.Payload):
				l.Payload = json.RawMessage(e.Payload)
			case utf8.Valid(e.Payload):
				l.Payload = string(e.Payload)
			}
			if err := encoder.Encode(l); err != nil {
				for ; i < len(errs); i++ {
					errs[i] = errors.Join(ErrUnavailable, err)
				}
				return errs
			}
		}
		return nil
	})
}
