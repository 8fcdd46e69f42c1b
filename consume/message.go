package consume

import (
	"fmt"
	"slices"
	"time"
)

// Message is one delivery of a message, from any broker. A handler must not change it.
type Message struct {
	// ID is the producer's message ID, if any: AMQP's message-id, or the id of a CloudEvent. Such an id is unique only
	// within its source, which is not part of ID: use [CloudEvent] as the key if events of several sources share the
	// queue or topic.
	ID string
	// Type says what happened ("order.placed"), EventSource where: the topic of an outbox's event, or the source of a
	// CloudEvent. OrderKey is the key within which the producer keeps the order, and Time is when it happened, or was
	// inserted into an outbox. They are empty if the producer did not say. A retry, a dead letter and its replay keep
	// them. docs/reference/consume.md names the header or property of each broker.
	Type        string
	EventSource string
	OrderKey    string
	Time        time.Time
	// BrokerID is the broker's message ID, if any. It changes when a producer sends a message again, and on some brokers
	// when a dead letter is replayed: see [BrokerID].
	BrokerID string
	// Occurrence distinguishes messages that a broker makes repeatedly from one message, all with its ID: the ticks of a
	// schedule of NATS. It is part of the key, whatever [Key] reads. Empty for all others.
	Occurrence string
	// Source is the queue or topic that the message was first sent to. It is not part of the key.
	Source string
	// Subject is the address within Source: AMQP's routing key, NATS' subject. A retry does not change it.
	Subject string
	// Headers are the headers as text. OmittedHeaders names the headers of the message that Headers leaves out: tables and
	// arrays, which have no text form, and headers that were too large for the copy of a retry.
	Headers        map[string]string
	OmittedHeaders []string
	// ContentType and ContentEncoding describe the body.
	ContentType     string
	ContentEncoding string
	Body            []byte
	// Deliveries is the number of the broker's deliveries, including this one; 0 if the broker has no such number.
	Deliveries int
	// Redelivered reports whether the broker delivered this message before. It is not set for a producer's duplicate.
	Redelivered bool
	// Retries counts the retries of the message that count towards [RetryPolicy.Limit].
	Retries int
	// First is when the message was first sent, or first retried; zero if unknown.
	First time.Time
}

// header returns the text of a header, and whether the message has it. An omitted header is an error, not a missing
// one.
func (m *Message) header(name string) (text string, found bool, err error) {
	text, found = m.Headers[name]
	if !found && slices.Contains(m.OmittedHeaders, name) {
		err = &omittedError{name}
	}
	return text, found, err
}

// omittedError is the error of a header in [Message.OmittedHeaders].
type omittedError struct{ name string }

func (e *omittedError) Error() string {
	return fmt.Sprintf("the header %q has no text, or was too large when the message was given back", e.name)
}
