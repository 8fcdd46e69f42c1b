package natsonce

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	"github.com/everonce/everonce"
)

// Topology says what is declared.
type Topology uint8

const (
	// DeclareOwn declares the durable consumer, the stream of dead letters and the bucket of counts, and checks that the
	// stream exists. It does not change those that exist.
	DeclareOwn Topology = iota
	// Check only checks that they all exist, for a user without the permission to create them.
	Check
)

// Queue describes what to consume. The zero value of each field that is not required is its default.
type Queue struct {
	// Stream is the name of the stream, which must exist. Required.
	Stream string
	// Durable is the name of the durable consumer; processes with the same one share its messages. Default: the name of
	// the [consume.Consumer]. A new one begins at the first message of the stream.
	Durable string
	// Subjects select messages of the stream. Default: all.
	Subjects []string
	// DeadLetters is the name of the stream of dead letters, which several consumers may share. A dead letter's subject
	// is DeadLetters, a dot, and Durable. Default Stream + "-dead".
	DeadLetters string
	// Counts is the name of the key-value bucket in which retries are counted, which consumers may share. Default Stream
	// + "-" + Durable + "-retries".
	Counts string
	// Topology says which of these are declared. Default [DeclareOwn].
	Topology Topology
	// AckWait is how long the server waits for an answer or a heartbeat before it redelivers a message, for example after
	// a crash. At least 1 s. It is set only if the durable consumer is declared here. Default 30 s.
	AckWait time.Duration
	// DeliveryLimit is how many deliveries of a message may end without an answer, one after the other, as when its
	// handler kills the process. The next one is a dead letter, with the reason "broker_delivery_limit". Each delivery
	// that ends with the process is one of them, also of messages that were not being handled. A message that waits for
	// the store has one for each restart of its consumer. Default 20.
	DeliveryLimit int
}

const defaultDeliveryLimit = 20

// named matches valid names of streams and consumers: JetStream allows more, a bucket does not.
var named = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,200}$`)

func (q *Queue) withDefaults(consumer string) (Queue, error) {
	c := *q
	c.Durable = cmp.Or(c.Durable, consumer)
	c.DeadLetters = cmp.Or(c.DeadLetters, c.Stream+"-dead")
	c.Counts = cmp.Or(c.Counts, c.Stream+"-"+c.Durable+"-retries")
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.DeliveryLimit = cmp.Or(c.DeliveryLimit, defaultDeliveryLimit)
	for _, field := range []struct{ name, value string }{
		{"Stream", c.Stream}, {"Durable", c.Durable}, {"DeadLetters", c.DeadLetters}, {"Counts", c.Counts},
	} {
		if !named.MatchString(field.value) {
			return c, fmt.Errorf("%w: natsonce: Queue.%s is %q, and must have 1 to 200 letters, digits, dashes and underscores", everonce.ErrInvalidArgument, field.name, field.value)
		}
	}
	switch {
	case c.DeadLetters == c.Stream:
		return c, fmt.Errorf("%w: natsonce: Queue.DeadLetters must differ from Queue.Stream", everonce.ErrInvalidArgument)
	case c.AckWait < time.Second:
		return c, fmt.Errorf("%w: natsonce: Queue.AckWait is %v, and must be at least 1s", everonce.ErrInvalidArgument, c.AckWait)
	case c.DeliveryLimit < 0:
		return c, fmt.Errorf("%w: natsonce: Queue.DeliveryLimit must not be negative", everonce.ErrInvalidArgument)
	case c.Topology > Check:
		return c, fmt.Errorf("%w: natsonce: unknown Topology %d", everonce.ErrInvalidArgument, c.Topology)
	}
	return c, nil
}

// deadLetterSubject returns the subject of dead letters.
func (q *Queue) deadLetterSubject() string { return q.DeadLetters + "." + q.Durable }
