package sqsonce

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/event"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
	"github.com/everonce/everonce/internal/envelope"
)

// Message attributes with a meaning here. [Publisher] sets them.
const (
	AttributeID              = entries.AttributeID          // Message.ID
	AttributeContentType     = entries.AttributeContentType // Message.ContentType
	AttributeContentEncoding = "content-encoding"           // Message.ContentEncoding
	AttributeEventType       = entries.AttributeType        // Message.Type
	AttributeEvent           = entries.AttributeEvent       // Message.EventSource, OrderKey and Time, as a JSON object of source, key and time; not in an event for which it would be the eleventh
)

// Headers with properties of SQS. No attribute can have such a name. A replay keeps them.
const (
	HeaderGroup         = "sqs:MessageGroupId"
	HeaderDeduplication = "sqs:MessageDeduplicationId"
)

// messageOf returns the message of a received message, still in its envelope.
func messageOf(raw *types.Message, queue string) (*consume.Message, note) {
	n, attributes := readNote(raw.MessageAttributes)
	m := &consume.Message{
		BrokerID: aws.ToString(raw.MessageId), Source: queue, Headers: map[string]string{}, Body: []byte(aws.ToString(raw.Body)),
		Deliveries: number(raw.Attributes["ApproximateReceiveCount"]), First: n.First,
	}
	m.Redelivered = m.Deliveries > 1
	m.Retries = max(m.Deliveries-1, 0)
	if m.First.IsZero() {
		m.First = sent(raw)
	}
	for name, a := range attributes {
		put(m, name, aws.ToString(a.DataType), aws.ToString(a.StringValue))
	}
	if n.Group == "" {
		n.Group = raw.Attributes["MessageGroupId"]
	}
	if n.Deduplication == "" {
		n.Deduplication = raw.Attributes["MessageDeduplicationId"]
	}
	for name, value := range map[string]string{HeaderGroup: n.Group, HeaderDeduplication: n.Deduplication} {
		if value != "" {
			m.Headers[name] = value
		}
	}
	slices.Sort(m.OmittedHeaders)
	return m, n
}

// put adds an attribute to the headers. A binary attribute has no text.
func put(m *consume.Message, name, dataType, value string) {
	if strings.HasPrefix(dataType, "Binary") {
		m.OmittedHeaders = append(m.OmittedHeaders, name)
		return
	}
	switch name {
	case AttributeID:
		m.ID = value
	case AttributeContentType:
		m.ContentType = value
	case AttributeContentEncoding:
		m.ContentEncoding = value
	case AttributeEvent:
		said := entries.Described(value)
		m.EventSource, m.OrderKey, m.Time = said.Source, said.Key, said.Time
	default:
		m.Headers[name] = value
	}
}

// describe fills in the fields that describe the event. In a FIFO queue the group is the order key if the producer set
// none. The group of a standard queue (a fair queue) is no order.
func describe(m *consume.Message) {
	native := envelope.Envelope{ID: m.ID, Type: cmp.Or(m.Type, m.Headers[AttributeEventType]), Source: m.EventSource, Key: m.OrderKey, Time: m.Time}
	if native.Source == "" && strings.HasSuffix(m.Source, fifoSuffix) {
		native.Key = m.Headers[HeaderGroup]
	}
	event.Describe(m, native)
}

// sent returns when a message was sent.
func sent(raw *types.Message) time.Time {
	ms, err := strconv.ParseInt(raw.Attributes["SentTimestamp"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
