package consume

import (
	"fmt"
	"slices"
	"time"
)

// Message is one delivery, from any broker. A handler must not change it.
type Message struct {
	// ID is the ID that the producer gave it (AMQP message-id, CloudEvents id); empty if there is none.
	ID string
	// BrokerID is the ID that the broker gave it. It changes when a producer sends a message again, and on some
	// brokers when a dead letter is moved back: see [BrokerID].
	BrokerID string
	// Source is the queue or topic that it was first sent to, for people. It is never part of the key.
	Source string
	// Subject is the address within that, if the broker has one: AMQP's routing key, NATS' subject. It does not
	// change when the message is given back.
	Subject string
	// Headers are its headers, as text. Odd names those whose values are missing: they have no text, such as tables
	// and arrays, or there was no room for them when the message was given back.
	Headers map[string]string
	Odd     []string
	// ContentType and ContentEncoding say what the body is.
	ContentType     string
	ContentEncoding string
	Body            []byte
	// Deliveries is how often the broker has delivered it, including this time; 0 if the broker does not count.
	Deliveries int
	// Redelivered says that, according to the broker, it was delivered before. A producer's duplicate is not marked
	// so.
	Redelivered bool
	// Retries is how often it was given back to be tried again, and counted.
	Retries int
	// First is when it was first sent, or first given back; zero if nobody has noted that.
	First time.Time
}

// header returns the text of a header. One whose value is not there is an error, and not the same as none.
func (m *Message) header(name string) (text string, found bool, err error) {
	text, found = m.Headers[name]
	if !found && slices.Contains(m.Odd, name) {
		err = &oddError{name}
	}
	return text, found, err
}

// oddError names a header whose value is not there.
type oddError struct{ name string }

func (e *oddError) Error() string {
	return fmt.Sprintf("the header %q has no text, or was too large when the message was given back", e.name)
}
