package sqsonce

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
)

// The names of message attributes that have a meaning here. [Publisher] sets them.
const (
	AttributeID              = "message-id"       // Message.ID
	AttributeContentType     = "content-type"     // Message.ContentType
	AttributeContentEncoding = "content-encoding" // Message.ContentEncoding
	AttributeEventType       = "event-type"       // an outbox event's type
)

// The headers that say what SQS itself knows of a message. No attribute can have such a name. A replay keeps them.
const (
	HeaderGroup         = "sqs:MessageGroupId"
	HeaderDeduplication = "sqs:MessageDeduplicationId"
)

// messageOf is a received message as a handler sees it, still in its envelope.
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
	slices.Sort(m.Odd)
	return m, n
}

// put adds an attribute to the headers. A binary one has no text.
func put(m *consume.Message, name, dataType, value string) {
	if strings.HasPrefix(dataType, "Binary") {
		m.Odd = append(m.Odd, name)
		return
	}
	switch name {
	case AttributeID:
		m.ID = value
	case AttributeContentType:
		m.ContentType = value
	case AttributeContentEncoding:
		m.ContentEncoding = value
	default:
		m.Headers[name] = value
	}
}

// sent is when a message was sent.
func sent(raw *types.Message) time.Time {
	ms, err := strconv.ParseInt(raw.Attributes["SentTimestamp"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
