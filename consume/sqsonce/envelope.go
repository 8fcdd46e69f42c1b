package sqsonce

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// Envelope is the format in which a service wraps the producer's message. A message that is not in the envelope
// becomes a dead letter, [consume.Undecodable].
type Envelope uint8

const (
	// Bare messages have no envelope: the producer sent them to SQS itself, or through SNS with raw message delivery.
	Bare Envelope = iota
	// SNS is the envelope of a subscription without raw message delivery. The body is its Message, the headers are its
	// attributes, and Subject is the topic's ARN. BrokerID is SNS' MessageId: it is kept by a redrive, but not when the
	// producer sends the message again.
	SNS
	// EventBridge is the envelope of a rule's target. The body is its detail, and Subject its detail-type. Source and
	// time are in the headers "eventbridge:source" and "eventbridge:time", and in Type, EventSource and Time. BrokerID is
	// its id: EventBridge's retries and a redrive keep it, but not a producer that sends the event again, so take the key
	// from the detail ([consume.JSONPointer]). ID is the ID that package eventbridgeonce gave the event, if any.
	EventBridge
)

var errEnvelope = errors.New("sqsonce: the message is not in the envelope that Queue.Envelope names")

// EventResource is the prefix of the resource that contains the ID of an outbox's event: EventBridge has no other
// field for it.
const EventResource = "everonce:event:"

// unwrap takes a message out of its envelope, and fills in the fields that describe its event.
func (e Envelope) unwrap(m *consume.Message) (err error) {
	switch e {
	case SNS:
		err = unwrapSNS(m)
	case EventBridge:
		err = unwrapEvent(m)
	case Bare:
	}
	describe(m)
	return err
}

func unwrapSNS(m *consume.Message) error {
	var n struct {
		Type, MessageID, TopicArn string
		Message                   *string
		MessageAttributes         map[string]struct{ Type, Value string }
	}
	if json.Unmarshal(m.Body, &n) != nil || n.Type != "Notification" || n.Message == nil {
		return errEnvelope
	}
	m.BrokerID, m.Subject, m.Body = n.MessageID, n.TopicArn, []byte(*n.Message)
	for name, a := range n.MessageAttributes {
		put(m, name, a.Type, a.Value)
	}
	return nil
}

func unwrapEvent(m *consume.Message) error {
	var e struct {
		ID         string          `json:"id"`
		DetailType *string         `json:"detail-type"`
		Source     string          `json:"source"`
		Time       string          `json:"time"`
		Resources  []string        `json:"resources"`
		Detail     json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(m.Body, &e) != nil || e.DetailType == nil || len(e.Detail) == 0 {
		return errEnvelope
	}
	m.BrokerID, m.Subject, m.Body, m.ContentType = e.ID, *e.DetailType, e.Detail, "application/json"
	m.Headers["eventbridge:source"], m.Headers["eventbridge:time"] = e.Source, e.Time
	m.Type, m.EventSource, m.Time = *e.DetailType, e.Source, envelope.ParseTime(e.Time)
	for _, r := range e.Resources {
		if id, ok := strings.CutPrefix(r, EventResource); ok {
			m.ID = id
		}
	}
	return nil
}
