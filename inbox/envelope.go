package inbox

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// keptHeader is the name under which the column of headers keeps the message fields that have no column. Handlers do
// not see it.
const keptHeader = "x-everonce-message"

// headerFields are the fields in keptHeader.
type headerFields struct {
	Subject         string    `json:"subject,omitempty"`
	EventSource     string    `json:"event_source,omitempty"`
	OrderKey        string    `json:"order_key,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	BrokerID        string    `json:"broker_id,omitempty"`
	ContentEncoding string    `json:"content_encoding,omitempty"`
	OmittedHeaders  []string  `json:"odd,omitempty"`
}

// headerText returns the column of headers of a message whose headers were validated.
func headerText(m *consume.Message) string {
	text, err := json.Marshal(headerFields{m.Subject, m.EventSource, m.OrderKey, m.Time, m.BrokerID, m.ContentEncoding, m.OmittedHeaders})
	if err != nil { // the time has no text
		text, _ = json.Marshal(headerFields{m.Subject, m.EventSource, m.OrderKey, time.Time{}, m.BrokerID, m.ContentEncoding, m.OmittedHeaders}) //nolint:errcheck,errchkjson // texts
	}
	headers := m.Headers
	if _, forged := headers[keptHeader]; forged || string(text) != "{}" {
		if headers = maps.Clone(headers); headers == nil {
			headers = map[string]string{}
		}
		headers[keptHeader] = string(text)
	}
	return sqlqueue.HeaderText(headers)
}

// readHeaders reads a column of headers that headerText wrote, or an application that inserts rows. The error wraps
// [everonce.ErrCorruptRecord].
func readHeaders(m *consume.Message, text string) error {
	headers, err := sqlqueue.ReadHeaders("inbox", text)
	if err != nil {
		return err
	}
	var k headerFields
	if json.Unmarshal([]byte(headers[keptHeader]), &k) == nil {
		m.Subject, m.EventSource, m.OrderKey, m.Time = k.Subject, k.EventSource, k.OrderKey, k.Time
		m.BrokerID, m.ContentEncoding, m.OmittedHeaders = k.BrokerID, k.ContentEncoding, k.OmittedHeaders
	}
	delete(headers, keptHeader)
	m.Headers = headers
	return nil
}
