package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// ReadMessage reads a request of an [outbox.Publisher] of this package, or one that is a CloudEvent in either mode, as a message: for an inbox, say.
// The ID is that of Webhook-Id, or of the CloudEvent, and the names of headers are in lower case. Verify the signature, if
// you need it, before. A body of more than maxBody bytes is [everonce.ErrTooLarge].
func ReadMessage(r *http.Request, maxBody int64) (*consume.Message, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, fmt.Errorf("webhook: %w: the body has more than %d bytes", everonce.ErrTooLarge, maxBody)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: reading the request: %w", err)
	}
	m := &consume.Message{ContentType: r.Header.Get("Content-Type"), ContentEncoding: r.Header.Get("Content-Encoding"), Headers: make(map[string]string, len(r.Header)), Body: body}
	for name, values := range r.Header {
		m.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	said := envelope.Read(m.ContentType, m.Headers, body)
	m.ID = cmp.Or(envelope.PercentDecoded(r.Header.Get("Webhook-Id")), said.ID)
	m.Type, m.EventSource, m.OrderKey, m.Time = said.Type, said.Source, said.Key, said.Time
	return m, nil
}
