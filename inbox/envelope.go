package inbox

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// keptHeader is the header that keeps, in the table, the fields of a message for which there is no column. A handler does
// not see it.
const keptHeader = "x-everonce-message"

// kept are those fields.
type kept struct {
	Subject         string    `json:"subject,omitempty"`
	EventSource     string    `json:"event_source,omitempty"`
	OrderKey        string    `json:"order_key,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	BrokerID        string    `json:"broker_id,omitempty"`
	ContentEncoding string    `json:"content_encoding,omitempty"`
	OmittedHeaders  []string  `json:"odd,omitempty"`
}

// headerText is the column of headers for a message whose headers were checked.
func headerText(m *consume.Message) string {
	text, err := json.Marshal(kept{m.Subject, m.EventSource, m.OrderKey, m.Time, m.BrokerID, m.ContentEncoding, m.OmittedHeaders})
	if err != nil { // a time of which there is no text
		text, _ = json.Marshal(kept{m.Subject, m.EventSource, m.OrderKey, time.Time{}, m.BrokerID, m.ContentEncoding, m.OmittedHeaders}) //nolint:errcheck,errchkjson // texts
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

// readHeaders reads what headerText wrote, or an application that inserts rows. The error wraps
// [everonce.ErrCorruptRecord].
func readHeaders(m *consume.Message, text string) error {
	headers, err := sqlqueue.ReadHeaders("inbox", text)
	if err != nil {
		return err
	}
	var k kept
	if json.Unmarshal([]byte(headers[keptHeader]), &k) == nil {
		m.Subject, m.EventSource, m.OrderKey, m.Time = k.Subject, k.EventSource, k.OrderKey, k.Time
		m.BrokerID, m.ContentEncoding, m.OmittedHeaders = k.BrokerID, k.ContentEncoding, k.OmittedHeaders
	}
	delete(headers, keptHeader)
	m.Headers = headers
	return nil
}
