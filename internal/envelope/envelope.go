// Package envelope describes an event beside its body: one set of fields, and the names under which each protocol's
// messages carry them. Publishers write by it, and consumers read by it.
//
// A field stands in the message's own property where the protocol has one, and else in the header that the CloudEvents
// binding of the protocol names: see [Binding]. The table is in docs/reference/consume.md.
package envelope

import (
	"cmp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Envelope is the description of an event. An empty field is unknown.
type Envelope struct {
	ID     string // of the event, the same whenever it is sent
	Type   string // what happened
	Source string // where: the topic of an outbox's event, the source of a CloudEvent
	Key    string // within which the producer keeps the order
	Time   time.Time
}

// Or returns e, with what it lacks from other.
func (e Envelope) Or(other Envelope) Envelope {
	e.ID, e.Type, e.Source, e.Key = cmp.Or(e.ID, other.ID), cmp.Or(e.Type, other.Type), cmp.Or(e.Source, other.Source), cmp.Or(e.Key, other.Key)
	if e.Time.IsZero() {
		e.Time = other.Time
	}
	return e
}

// Read reads what the headers and the body say, in whichever binding of CloudEvents. Text that is not a time gives none.
func Read(contentType string, headers map[string]string, body []byte) Envelope {
	if IsStructured(contentType) {
		return structured(body)
	}
	var e Envelope
	for _, b := range bindings {
		e = e.Or(b.read(headers))
	}
	return e
}

// IsStructured reports whether a content type is that of a CloudEvent whose attributes are in its body, as JSON.
func IsStructured(contentType string) bool {
	base, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(base), "application/cloudevents+json")
}

func structured(body []byte) Envelope {
	var e struct {
		ID     string `json:"id"`
		Type   string `json:"type"`
		Source string `json:"source"`
		Key    string `json:"partitionkey"`
		Time   string `json:"time"`
	}
	if json.Unmarshal(body, &e) != nil {
		return Envelope{}
	}
	return Envelope{ID: e.ID, Type: e.Type, Source: e.Source, Key: e.Key, Time: ParseTime(e.Time)}
}

// TimeText writes a time as CloudEvents have it; the zero time is empty.
func TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// ParseTime reads a time of the years 1 to 9999. Other text gives the zero time.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
