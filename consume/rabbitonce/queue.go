package rabbitonce

import (
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/internal/copies"
)

// Topology says which queues are declared.
type Topology uint8

const (
	// Declare declares the queue, its retry queues and its dead-letter queue. A queue that exists with other arguments
	// is an error.
	Declare Topology = iota
	// DeclareOwn declares the retry queues and the dead-letter queue, and checks that the queue exists. It must not be a
	// stream, whose consumers do not get earlier messages.
	DeclareOwn
	// Check only checks that all queues exist, for a user without the permission to configure. AMQP does not show their
	// arguments.
	Check
)

// Queue describes the queue to consume. The zero value of each field that is not required is its default.
type Queue struct {
	// Name is the name of the queue. Required.
	Name string
	// DeadLetters is the name of the dead-letter queue, which several queues may share. Default Name + ".dead".
	DeadLetters string
	// Delays are the possible delays of a retry, from 1 ms to 24 h. Each has its own queue. A retry uses the shortest
	// that is not below the delay of [consume.RetryPolicy], or else the longest. Default 1 s, 5 s, 30 s, 2 min and 10
	// min.
	Delays []time.Duration
	// Topology says which of these queues are declared. Default [Declare].
	Topology Topology
	// DeliveryLimit is how often the broker redelivers a message that is not acknowledged before the connection is lost,
	// as when its handler kills the process. Then the broker dead-letters it. Messages prefetched with it are redelivered
	// as often, and become dead letters with it: replay them. A message that waits for the store is redelivered once for
	// each AckTimeout, and once for each end of its consumer, also a regular one: with the defaults, it is a dead letter
	// after ten and a half hours, or at the 21st restart. The limit is set only if Topology is [Declare]. Default 20.
	DeliveryLimit int
}

const defaultDeliveryLimit = 20

// maxName leaves room for the suffixes of a queue's name: AMQP's names have at most 255 bytes.
const maxName = 230

func (q *Queue) withDefaults() (Queue, error) {
	c := *q
	var err error
	if c.Delays, err = copies.Delays(q.Delays, "rabbitonce: Queue.Delays"); err != nil {
		return c, err
	}
	if c.DeadLetters == "" {
		c.DeadLetters = c.Name + ".dead"
	}
	if c.DeliveryLimit == 0 {
		c.DeliveryLimit = defaultDeliveryLimit
	}
	switch {
	case c.Name == "" || len(c.Name) > maxName || len(c.DeadLetters) > maxName:
		return c, fmt.Errorf("%w: rabbitonce: Queue.Name and Queue.DeadLetters must have 1 to %d bytes", everonce.ErrInvalidArgument, maxName)
	case c.DeadLetters == c.Name:
		return c, fmt.Errorf("%w: rabbitonce: Queue.DeadLetters must differ from Queue.Name", everonce.ErrInvalidArgument)
	case c.DeliveryLimit < 0:
		return c, fmt.Errorf("%w: rabbitonce: Queue.DeliveryLimit must not be negative", everonce.ErrInvalidArgument)
	case c.Topology > Check:
		return c, fmt.Errorf("%w: rabbitonce: unknown Topology %d", everonce.ErrInvalidArgument, c.Topology)
	}
	return c, nil
}

// retryQueue returns the name of the retry queue for a delay.
func (q *Queue) retryQueue(delay time.Duration) string {
	return q.Name + ".retry." + copies.DelayName(delay)
}
