package rabbitonce

import (
	"errors"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Some messages end the connection at each delivery: the client library cannot read their headers, or the broker
// cannot write for AMQP 0.9.1 what it got through another protocol. Each loss is one more delivery for all prefetched
// messages, up to the limit at which the broker makes dead letters of them, although they were not handled.

// moments is how soon after a delivery a loss of the session is attributed to that delivery.
const moments = 5 * time.Second

// undeliverable reports whether a session seems to have been lost over a message that cannot be delivered: the library
// or the broker says so, or two sessions in a row were lost soon after a delivery. Then messages are taken one by one,
// until a whole prefetch of them has come: only the undeliverable message reaches the delivery limit.
func (s *session) undeliverable(err error) bool {
	return unread(err) || unwritten(err) || s.again && s.lostOverDelivery() && time.Since(s.since) < moments
}

// lostOverDelivery reports whether the connection was lost within moments of a delivery, or of the start of the
// consumer if messages were waiting: the first of them may be undeliverable. A loss without any message says nothing
// about one.
func (s *session) lostOverDelivery() bool {
	return s.conn.IsClosed() && !s.delivered.IsZero() && time.Since(s.delivered) < moments
}

// unread reports whether the client library could not read what the broker sent, most likely headers that are nested
// too deeply.
func unread(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && strings.Contains(e.Reason, amqp.ErrSyntax.Reason)
}

// unwritten reports whether the broker had an internal error on this connection.
func unwritten(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Server && e.Code == amqp.InternalError
}

func suspicion(err error) string {
	if unread(err) {
		return "the headers of a message cannot be read"
	}
	return "the connection was lost as soon as messages were delivered, most likely over one that the broker cannot deliver (it stays at the head of the queue up to its delivery limit, and is a dead letter then)"
}
