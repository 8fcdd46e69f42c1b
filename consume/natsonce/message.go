package natsonce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/consume/internal/event"
	"github.com/everonce/everonce/internal/envelope"
)

// headerSubject is the original subject of a dead letter. The other headers of copies are the same for all brokers.
const headerSubject = copies.Prefix + "subject"

// headerID is the header of the producer's message ID.
var headerID = envelope.HTTP.Name("id")

// messageOf returns the message of a delivery.
func messageOf(msg jetstream.Msg, at *jetstream.MsgMetadata, c count) *consume.Message {
	m := readMessage(msg.Headers(), msg.Data())
	m.BrokerID = fmt.Sprintf("%s:%d", at.Stream, at.Sequence.Stream)
	m.Source, m.Subject = at.Stream, msg.Subject()
	m.Deliveries, m.Redelivered = int(min(at.NumDelivered, 1<<30)), at.NumDelivered > 1
	m.Retries = c.retries
	if m.First.IsZero() {
		m.First = copies.Writable(at.Timestamp)
	}
	return m
}

// readMessage returns a message as its producer sent it, also from a copy.
func readMessage(h nats.Header, body []byte) *consume.Message {
	note := copies.Read(textHeaders(h, copies.Ours))
	m := &consume.Message{
		ContentType: cmp.Or(h.Get("Content-Type"), h.Get("content-type")), ContentEncoding: cmp.Or(h.Get("Content-Encoding"), h.Get("content-encoding")), Body: body, First: note.First,
		Headers: textHeaders(h, func(name string) bool { return !copies.Ours(name) && len(h[name]) == 1 && utf8.ValidString(h[name][0]) }),
	}
	for name := range h {
		if _, ok := m.Headers[name]; !ok && !copies.Ours(name) {
			m.OmittedHeaders = append(m.OmittedHeaders, name)
		}
	}
	if isCopy(h) { // its own ID belongs to the copy
		delete(m.Headers, jetstream.MsgIDHeader)
		if id := h.Get(copies.MessageID); id != "" {
			m.Headers[jetstream.MsgIDHeader] = id
		}
		for name, kept := range tickHeaders {
			if value := h.Get(kept); value != "" {
				m.Headers[name] = value
			}
		}
	}
	m.Occurrence = occurrence(m.Headers)
	m.OmittedHeaders = append(m.OmittedHeaders, note.Dropped...)
	slices.Sort(m.OmittedHeaders)
	m.OmittedHeaders = slices.Compact(m.OmittedHeaders)
	m.ID = envelope.PercentDecoded(m.Headers[headerID])
	event.Describe(m, envelope.Envelope{})
	return m
}

// isCopy reports whether a message is a dead letter or a replay.
func isCopy(h nats.Header) bool { return h.Get(copies.Reason) != "" || h.Get(copies.Replays) != "" }

// textHeaders returns the selected headers as text. A header that occurs several times has its values in lines.
func textHeaders(h nats.Header, meant func(name string) bool) map[string]string {
	m := make(map[string]string, len(h))
	for name, values := range h {
		if meant(name) {
			m[name] = strings.Join(values, "\r\n"+name+": ")
		}
	}
	return m
}
