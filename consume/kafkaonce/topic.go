package kafkaonce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/internal/copies"
)

// Topology says which topics are created.
type Topology uint8

const (
	// Declare creates the retry topics and the dead-letter topic if they do not exist. The topic itself must exist.
	Declare Topology = iota
	// Check only checks that all topics exist.
	Check
)

// Topic describes the topic to consume. The zero value of each field that is not required is its default.
type Topic struct {
	// Name is the name of the topic. Required.
	Name string
	// DeadLetters is the name of the dead-letter topic, which several topics may share. It must be compacted, or keep its
	// records for ever, and must not be given more partitions later. Default Name + ".dead".
	DeadLetters string
	// Delays are the possible delays of a retry, from 1 ms to 24 h. Each has its own topic. A retry uses the shortest
	// that is not below the delay of [consume.RetryPolicy], or else the longest. A topic of an earlier delay is consumed
	// as long as it exists. Default 1 s, 5 s, 30 s, 2 min and 10 min.
	Delays []time.Duration
	// Topology says which of these topics are created. A created topic has the topic's replicas and min.insync.replicas,
	// and room for its largest message with what a copy adds. A retry topic has as many partitions as the topic and its
	// retention, but at least the delay and an hour. Dead letters remain until they are replayed or discarded. Default
	// [Declare].
	Topology Topology
}

// maxName leaves room for the suffixes of a topic's name: Kafka's names have at most 249 characters.
const maxName = 230

func (t *Topic) withDefaults() (Topic, error) {
	c := *t
	var err error
	if c.Delays, err = copies.Delays(t.Delays, "kafkaonce: Topic.Delays"); err != nil {
		return c, err
	}
	c.DeadLetters = cmp.Or(c.DeadLetters, c.Name+".dead")
	switch {
	case c.Name == "" || len(c.Name) > maxName || len(c.DeadLetters) > maxName:
		return c, fmt.Errorf("%w: kafkaonce: Topic.Name and Topic.DeadLetters must have 1 to %d bytes", everonce.ErrInvalidArgument, maxName)
	case c.DeadLetters == c.Name:
		return c, fmt.Errorf("%w: kafkaonce: Topic.DeadLetters must differ from Topic.Name", everonce.ErrInvalidArgument)
	case c.Topology > Check:
		return c, fmt.Errorf("%w: kafkaonce: unknown Topology %d", everonce.ErrInvalidArgument, c.Topology)
	}
	return c, nil
}

// retryTopic returns the name of the retry topic for a delay.
func (t *Topic) retryTopic(delay time.Duration) string {
	return t.Name + ".retry." + copies.DelayName(delay)
}

// retries returns the delay of each retry topic.
func (t *Topic) retries() map[string]time.Duration {
	delays := make(map[string]time.Duration, len(t.Delays))
	for _, d := range t.Delays {
		delays[t.retryTopic(d)] = d
	}
	return delays
}
