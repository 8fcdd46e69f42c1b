package rabbitonce

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrTopology says that a queue does not exist, or exists with other arguments. The text names the queue.
var ErrTopology = errors.New("rabbitonce: wrong queues")

// establish declares the queues, or checks that they exist.
func (q *Queue) establish(conn *link) error {
	if err := q.establishDeadLetters(conn); err != nil {
		return err
	}
	for _, delay := range q.Delays {
		if err := withChannel(conn, func(ch *amqp.Channel) error {
			name := q.retryQueue(delay)
			if q.Topology == Check {
				return exists(ch, name)
			}
			return declared(ch, name, amqp.Table{
				"x-queue-type":              "quorum",
				"x-message-ttl":             delay.Milliseconds(),
				"x-dead-letter-exchange":    "",
				"x-dead-letter-routing-key": q.Name,
				"x-dead-letter-strategy":    "at-least-once",
				"x-overflow":                "reject-publish",
			})
		}); err != nil {
			return err
		}
	}
	return withChannel(conn, func(ch *amqp.Channel) error {
		if q.Topology != Declare {
			return exists(ch, q.Name)
		}
		return declared(ch, q.Name, amqp.Table{
			"x-queue-type":              "quorum",
			"x-delivery-limit":          int64(q.DeliveryLimit),
			"x-dead-letter-exchange":    "",
			"x-dead-letter-routing-key": q.DeadLetters,
			"x-dead-letter-strategy":    "at-least-once",
			"x-overflow":                "reject-publish",
		})
	})
}

// establishDeadLetters does not change an existing queue, whose arguments depend on the version of the broker that it
// was declared on.
func (q *Queue) establishDeadLetters(conn *link) error {
	missing := withChannel(conn, func(ch *amqp.Channel) error { return exists(ch, q.DeadLetters) })
	if missing == nil || q.Topology == Check {
		return missing
	}
	return withChannel(conn, func(ch *amqp.Channel) error {
		return declared(ch, q.DeadLetters, unlimited(conn))
	})
}

// unlimited returns the arguments of a quorum queue without a delivery limit.
func unlimited(conn *link) amqp.Table {
	arguments := amqp.Table{"x-queue-type": "quorum"}
	if majorVersion(conn) >= 4 {
		// From 4.0 on a quorum queue drops a message after 20 deliveries, and reading a dead letter is one.
		arguments["x-delivery-limit"] = int64(-1)
	}
	return arguments
}

func majorVersion(conn *link) int {
	version, _ := conn.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// withChannel runs fn on a separate channel, because the broker closes the channel if it refuses a request.
func withChannel(conn *link, fn func(*amqp.Channel) error) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("rabbitonce: opening a channel: %w", err)
	}
	defer ch.Close() //nolint:errcheck // it may be closed already
	return fn(ch)
}

func exists(ch *amqp.Channel, name string) error {
	if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
		return topologyError(name, "does not exist, or the user may not access it", err)
	}
	return nil
}

func declared(ch *amqp.Channel, name string, arguments amqp.Table) error {
	if _, err := ch.QueueDeclare(name, true, false, false, false, arguments); err != nil {
		return topologyError(name, "cannot be declared (if it exists with other arguments, use Topology DeclareOwn)", err)
	}
	return nil
}

// topologyError wraps an error with ErrTopology if the broker refused the request and closed the channel for it, but
// not if the connection is lost. For an operation that a kind of queue does not support, like basic.get on a stream,
// the broker closes the connection too.
func topologyError(queue, what string, err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Server && (e.Recover || e.Code == amqp.NotImplemented) {
		return fmt.Errorf("%w: queue %q %s: %w", ErrTopology, queue, what, err)
	}
	return fmt.Errorf("rabbitonce: queue %q: %w", queue, err)
}
