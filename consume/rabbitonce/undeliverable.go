package rabbitonce

import (
	"errors"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Some messages end the connection at each delivery: the client library cannot read their headers, or the broker cannot write for AMQP
// 0.9.1 what it was given by another protocol. Each loss is one delivery more for all messages that were sent ahead with it, up to the
// limit at which the broker makes dead letters of them, although nobody has handled them.

// moments is how soon after a delivery a session is lost over one.
const moments = 5 * time.Second

// undeliverable reports whether a session seems to have been lost over a message that cannot be delivered: the library or the broker says so, or
// a session that did not last was lost over a delivery, as was the one before it. Then messages come one by one, until as many have come as are
// sent ahead otherwise: that message alone goes on to the limit of deliveries.
func (s *session) undeliverable(err error) bool {
	return unread(err) || unwritten(err) || s.again && s.lostOverDelivery() && time.Since(s.since) < moments
}

// lostOverDelivery reports whether the connection was lost within moments of a delivery, or of asking for messages where some waited: the one
// that cannot be delivered may be the first. A loss without any message says nothing about one.
func (s *session) lostOverDelivery() bool {
	return s.conn.IsClosed() && !s.delivered.IsZero() && time.Since(s.delivered) < moments
}

// unread reports whether the client library could not read what the broker sent: headers that are nested more deeply than it reads, most
// likely.
func unread(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && strings.Contains(e.Reason, amqp.ErrSyntax.Reason)
}

// unwritten reports whether the broker has failed at something on this connection.
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
