// Package cloudeventsonce publishes the events of an outbox as CloudEvents 1.0, through any other publisher.
//
//	publisher, err := cloudeventsonce.New(next, "https://example.com/orders", cloudeventsonce.Structured)
//	…
//	relay, err := box.Relay(publisher, nil)
//
// Source and id together name the event wherever it is published, however often: consume.CloudEvent takes them as the
// key. An event that is published again is the same, byte for byte.
package cloudeventsonce

import (
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/everonce/everonce/outbox"
)

// extensions are headers of an event that are attributes of a CloudEvent: its distributed tracing extension.
var extensions = []string{"traceparent", "tracestate"}

// Event returns an outbox event as an event of the CloudEvents SDK. Its type is the event's type, or the topic if the
// event has no type. subject and partitionkey are the event's key, time is when it was inserted, and the headers
// traceparent and tracestate become extensions. Other headers are left out. A payload that is JSON or text becomes data
// unchanged, any other payload becomes data_base64.
func Event(source string, e *outbox.Event) (event.Event, error) {
	ce := event.New(event.CloudEventsVersionV1)
	ce.SetID(e.ID)
	ce.SetSource(source)
	if ce.SetType(e.Type); e.Type == "" {
		ce.SetType(e.Topic)
	}
	if !e.CreatedAt.IsZero() {
		ce.SetTime(e.CreatedAt)
	}
	if e.Key != "" {
		ce.SetSubject(e.Key)
		ce.SetExtension("partitionkey", e.Key)
	}
	for _, name := range extensions {
		if value, ok := e.Headers[name]; ok {
			ce.SetExtension(name, value)
		}
	}
	if e.ContentType != "" {
		ce.SetDataContentType(e.ContentType)
	}
	if len(e.Payload) > 0 {
		ce.DataEncoded, ce.DataBase64 = e.Payload, !isReadable(e)
	}
	if err := ce.Validate(); err != nil {
		return ce, fmt.Errorf("cloudeventsonce: the event cannot be a CloudEvent: %w", err)
	}
	return ce, nil
}

// isReadable reports whether a payload can stand in the JSON unchanged: as JSON, or as a string.
func isReadable(e *outbox.Event) bool {
	media, _, err := mime.ParseMediaType(e.ContentType)
	if e.ContentType == "" || err == nil && (media == event.ApplicationJSON || media == event.TextJSON || strings.HasSuffix(media, "+json")) {
		return json.Valid(e.Payload)
	}
	return err == nil && utf8.Valid(e.Payload)
}
