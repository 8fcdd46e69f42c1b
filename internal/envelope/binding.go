package envelope

import (
	"fmt"
	"mime"
	"net/url"
	"strings"
)

// Binding is how the messages of a protocol name the attributes of a CloudEvent in their headers.
type Binding struct {
	prefix  string
	encoded bool // values are percent-encoded
}

// The bindings of CloudEvents 1.0.
var (
	HTTP  = Binding{prefix: "ce-", encoded: true} // NATS has it too
	Kafka = Binding{prefix: "ce_"}
	AMQP  = Binding{prefix: "cloudEvents:"}
	jms   = Binding{prefix: "cloudEvents_"} // AMQP, for clients of JMS
)

var bindings = []Binding{HTTP, Kafka, AMQP, jms}

// Name returns the header of an attribute.
func (b Binding) Name(attribute string) string { return b.prefix + attribute }

// Value returns the header's value for a text.
func (b Binding) Value(text string) string {
	if b.encoded {
		return percentEncoded(text)
	}
	return text
}

// Headers returns the headers that describe an event.
func (b Binding) Headers(e Envelope) map[string]string {
	headers := make(map[string]string, 5)
	for attribute, text := range map[string]string{"id": e.ID, "type": e.Type, "source": e.Source, "partitionkey": e.Key, "time": TimeText(e.Time)} {
		if text != "" {
			headers[b.Name(attribute)] = b.Value(text)
		}
	}
	return headers
}

func (b Binding) read(headers map[string]string) Envelope {
	get := func(attribute string) string {
		text := headers[b.prefix+attribute]
		if b.encoded {
			return PercentDecoded(text)
		}
		return text
	}
	return Envelope{ID: get("id"), Type: get("type"), Source: get("source"), Key: get("partitionkey"), Time: ParseTime(get("time"))}
}

// percentEncoded is a text as a header of the HTTP binding (CloudEvents 1.0.2, 3.1.3.2).
func percentEncoded(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// PercentDecoded is the text of a header of the HTTP binding, which may be a quoted string. One that is not
// percent-encoded stands for itself.
func PercentDecoded(value string) string {
	if strings.HasPrefix(value, `"`) {
		if _, params, err := mime.ParseMediaType("text/plain; value=" + value); err == nil { // which has quoted strings too
			value = params["value"]
		}
	}
	text, err := url.PathUnescape(value)
	if err != nil {
		return value
	}
	return text
}
