package kafkaonce

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/consume/internal/event"
	"github.com/everonce/everonce/internal/envelope"
)

// Headers of a message that describe its value, and the header of its ID.
const (
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
)

var headerID = envelope.Kafka.Name("id")

// headerOrigin is the topic, partition and offset of the original of a copy.
const headerOrigin = copies.Prefix + "origin"

// RecordKey uses the record key. It often names an entity, like an order, and not one event of it: then all later
// events of the entity would be duplicates. Use it alone only if each event has its own key; otherwise put it into a
// [consume.Composite] with a value that differs between the events. A key that is not valid UTF-8 is written as
// "hex:…".
func RecordKey() consume.Key {
	return func(m *consume.Message) (string, error) {
		if m.Subject == "" {
			return "", fmt.Errorf("%w: the message has no record key", consume.ErrNoKey)
		}
		return keyText(m.Subject), nil
	}
}

// keyText returns a record key as text.
func keyText(key string) string {
	if !utf8.ValidString(key) || strings.HasPrefix(key, "hex:") {
		return "hex:" + hex.EncodeToString([]byte(key))
	}
	return key
}

// messageOf returns the message of a record, as its producer sent it, even if the record is a copy. Of headers with
// the same name it uses the last, as Kafka's own client does.
func messageOf(r *kgo.Record, topic string) *consume.Message {
	text, omitted := textHeaders(r)
	note := copies.Read(text)
	m := &consume.Message{
		ID: text[headerID], BrokerID: origin(r, text), Source: topic, Subject: string(r.Key),
		ContentType: text[headerContentType], ContentEncoding: text[headerContentEncoding],
		Body: r.Value, Retries: note.Retries, First: note.First, OmittedHeaders: omitted,
	}
	if m.First.IsZero() {
		m.First = copies.Writable(r.Timestamp)
	}
	for name, value := range text {
		if !copies.Ours(name) {
			if m.Headers == nil {
				m.Headers = make(map[string]string, len(text))
			}
			m.Headers[name] = value
		}
	}
	event.Describe(m, envelope.Envelope{})
	m.OrderKey = cmp.Or(keyText(m.Subject), m.OrderKey)
	return m
}

// textHeaders returns the headers that are text, with empty text for a header without a value, and the names of the
// others.
func textHeaders(r *kgo.Record) (text map[string]string, omitted []string) {
	text = make(map[string]string, len(r.Headers))
	last := make(map[string][]byte, len(r.Headers))
	for _, h := range r.Headers {
		last[h.Key] = h.Value
	}
	for name, value := range last {
		if utf8.Valid(value) {
			text[name] = string(value)
		} else {
			omitted = append(omitted, name)
		}
	}
	return text, omitted
}

// origin returns the topic, partition and offset of the original message, also for a copy.
func origin(r *kgo.Record, text map[string]string) string {
	if at := text[headerOrigin]; at != "" {
		return at
	}
	return fmt.Sprintf("%s:%d:%d", r.Topic, r.Partition, r.Offset)
}
