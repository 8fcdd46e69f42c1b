package webhook

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// ReadMessage reads a request of this package's [outbox.Publisher], or a CloudEvent in either mode, as a message, for
// example for an inbox. Its ID is the Webhook-Id, or the CloudEvent's id. A body of more than maxBody bytes is
// [everonce.ErrTooLarge].
//
// The message has the headers that describe an event, and the headers named in keep, in any case: for example an
// event's own headers. Other headers are left out, because an inbox stores its messages, and credentials and signatures
// are among those headers. The headers that describe an event are Ce-…, Content-…, Traceparent, Tracestate, Baggage,
// Idempotency-Key, Webhook-Id and Webhook-Timestamp. The message has the names in lower case.
//
// A signature covers r.Header and Message.Body: verify it before you use the message. r.Body can be read again
// afterwards.
func ReadMessage(r *http.Request, maxBody int64, keep ...string) (*consume.Message, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, fmt.Errorf("webhook: %w: the body has more than %d bytes", everonce.ErrTooLarge, maxBody)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: reading the request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m := &consume.Message{ContentType: r.Header.Get("Content-Type"), ContentEncoding: r.Header.Get("Content-Encoding"), Headers: make(map[string]string, len(r.Header)), Body: body}
	for name, values := range r.Header {
		if name = strings.ToLower(name); describes(name) || slices.ContainsFunc(keep, func(kept string) bool { return strings.EqualFold(kept, name) }) {
			m.Headers[name] = strings.Join(values, ", ")
		}
	}
	said := envelope.Read(m.ContentType, m.Headers, body)
	m.ID = cmp.Or(envelope.PercentDecoded(r.Header.Get("Webhook-Id")), said.ID)
	m.Type, m.EventSource, m.OrderKey, m.Time = said.Type, said.Source, said.Key, said.Time
	return m, nil
}

// describes reports whether a header, in lower case, describes an event.
func describes(name string) bool {
	switch name {
	case "traceparent", "tracestate", "baggage", "idempotency-key", "webhook-id", "webhook-timestamp":
		return true
	}
	return strings.HasPrefix(name, "ce-") || strings.HasPrefix(name, "content-")
}
