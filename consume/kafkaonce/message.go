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

// The headers of a message that describe its value, and the one of its ID.
const (
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
)

var headerID = envelope.Kafka.Name("id")

// headerOrigin is the topic, partition and offset of the message that a copy is of.
const headerOrigin = copies.Prefix + "origin"

// RecordKey uses the record key. It names an entity, like an order, more often than one event of it: then all later events
// of the entity would be taken for duplicates. Use it alone only if each event has a key of its own; else put it into a
// [consume.Composite] with what tells the entity's events apart. A key that is not valid UTF-8 is written as "hex:…".
func RecordKey() consume.Key {
	return func(m *consume.Message) (string, error) {
		if m.Subject == "" {
			return "", fmt.Errorf("%w: the message has no record key", consume.ErrNoKey)
		}
		return keyText(m.Subject), nil
	}
}

// keyText is a record key as text.
func keyText(key string) string {
	if !utf8.ValidString(key) || strings.HasPrefix(key, "hex:") {
		return "hex:" + hex.EncodeToString([]byte(key))
	}
	return key
}

// messageOf is a record as a consumer sees it: as its producer has sent it, whichever way it came. Of headers with the same name the
// last counts, as to Kafka's own client.
func messageOf(r *kgo.Record, topic string) *consume.Message {
	text, odd := texts(r)
	note := copies.Read(text)
	m := &consume.Message{
		ID: text[headerID], BrokerID: origin(r, text), Source: topic, Subject: string(r.Key),
		ContentType: text[headerContentType], ContentEncoding: text[headerContentEncoding],
		Body: r.Value, Retries: note.Retries, First: note.First, OmittedHeaders: odd,
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

// texts returns the headers as text, those without a value as empty texts, and the names of those that are not text.
func texts(r *kgo.Record) (text map[string]string, odd []string) {
	text = make(map[string]string, len(r.Headers))
	last := make(map[string][]byte, len(r.Headers))
	for _, h := range r.Headers {
		last[h.Key] = h.Value
	}
	for name, value := range last {
		if utf8.Valid(value) {
			text[name] = string(value)
		} else {
			odd = append(odd, name)
		}
	}
	return text, odd
}

// origin is where the message was first: a copy of it is the same message.
func origin(r *kgo.Record, text map[string]string) string {
	if at := text[headerOrigin]; at != "" {
		return at
	}
	return fmt.Sprintf("%s:%d:%d", r.Topic, r.Partition, r.Offset)
}
