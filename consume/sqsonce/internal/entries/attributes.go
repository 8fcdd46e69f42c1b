package entries

import (
	"encoding/json"

	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

// Message attributes that describe an event. SQS allows ten, so those that no subscription filters by share one.
const (
	AttributeID          = "message-id"
	AttributeType        = "event-type"
	AttributeContentType = "content-type"
	AttributeEvent       = "everonce-event" // source, key and time, as JSON
)

type event struct {
	Source string `json:"source,omitempty"`
	Key    string `json:"key,omitempty"`
	Time   string `json:"time,omitempty"`
}

// described returns the [AttributeEvent] of an event.
func described(e *outbox.Event) string {
	text, _ := json.Marshal(event{e.Topic, e.Key, envelope.TimeText(e.CreatedAt)}) //nolint:errcheck,errchkjson // strings always marshal
	return string(text)
}

// Described reads [AttributeEvent]. It returns an empty envelope for text that is not a JSON object.
func Described(text string) envelope.Envelope {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
		return envelope.Envelope{}
	}
	return envelope.Envelope{Source: e.Source, Key: e.Key, Time: envelope.ParseTime(e.Time)}
}
