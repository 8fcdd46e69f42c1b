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
	"github.com/go-json-experiment/json/jsontext"
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

// Read reads what the body and the headers say, in whichever binding of CloudEvents. The body of a structured event
// goes before its headers, field by field. Text that is not a time gives none.
func Read(contentType string, headers map[string]string, body []byte) Envelope {
	var e Envelope
	if IsStructured(contentType) {
		e = structured(body)
	}
	for _, b := range bindings {
		e = e.Or(b.read(headers))
	}
	return e
}

// IsStructured reports whether a content type denotes a CloudEvent whose attributes are in its body, as JSON.
func IsStructured(contentType string) bool {
	base, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(base), "application/cloudevents+json")
}

// structured reads a body. One that is not JSON, or has a name twice, says nothing.
func structured(body []byte) Envelope {
	var e struct {
		ID     text `json:"id"`
		Type   text `json:"type"`
		Source text `json:"source"`
		Key    text `json:"partitionkey"`
		Time   text `json:"time"`
	}
	if json.Unmarshal(body, &e) != nil {
		return Envelope{}
	}
	return Envelope{ID: string(e.ID), Type: string(e.Type), Source: string(e.Source), Key: string(e.Key), Time: ParseTime(string(e.Time))}
}

// text is a JSON string, or the digits of an integer. Any other value is empty.
type text string

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (t *text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if kind := d.PeekKind(); kind != jsontext.KindString && kind != jsontext.KindNumber {
		return d.SkipValue()
	}
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if value := token.String(); token.Kind() == jsontext.KindString || !strings.ContainsAny(value, ".eE") && value != "-0" {
		*t = text(value)
	}
	return nil
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
