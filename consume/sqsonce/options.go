package sqsonce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Options configure a consumer. The zero value of each field is its default; negative values are errors.
type Options struct {
	// Workers configure the handling of messages. Default: as for [consume.Workers], with 10 minutes of HandleTimeout.
	// SQS lets a consumer hold a message for at most 12 hours: a HandleTimeout by which a message could wait that long,
	// with the messages received before it, is an error.
	Workers consume.Workers
	// Prefetch is the largest number of unanswered messages. It must be at least Workers.Batch. Default 2 ×
	// Workers.Concurrency × Workers.Batch.
	Prefetch int
	// Visibility is how long a message stays hidden from others without a heartbeat of this consumer, in whole seconds.
	// Heartbeats extend it at a third of that until the message is answered. A message of a killed process waits that
	// long. It replaces the queue's own setting. 3 s to 12 h. Default 30 s.
	Visibility time.Duration
	// Wait is how long SQS waits for messages before it answers without any (long polling), in whole seconds. At most 20
	// s. If your HTTP client has a timeout, it must be longer. Default 20 s.
	Wait time.Duration
	// Backoff bounds the pause after SQS did not answer. Default 500 ms and 30 s.
	Backoff consume.Backoff
}

const (
	maxInHand            = 12 * time.Hour // SQS lets a message be hidden for that long after its receipt
	maxReceive           = 10             // messages in an answer
	defaultHandleTimeout = 10 * time.Minute
	margin               = time.Minute // before maxInHand, in which a message is answered
)

// withDefaults returns o with its defaults, or an error that wraps [everonce.ErrInvalidArgument].
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	w := &c.Workers
	if w.Concurrency < 0 || w.Batch < 0 || w.HandleTimeout < 0 || c.Prefetch < 0 || c.Visibility < 0 || c.Wait < 0 || c.Backoff.Min < 0 || c.Backoff.Max < 0 {
		return c, fmt.Errorf("%w: sqsonce: no field of Options may be negative", everonce.ErrInvalidArgument)
	}
	*w = w.WithDefaults()
	c.Prefetch = cmp.Or(c.Prefetch, 2*w.Concurrency*w.Batch)
	c.Visibility = cmp.Or(c.Visibility, 30*time.Second)
	c.Wait = cmp.Or(c.Wait, 20*time.Second)
	c.Backoff = c.Backoff.WithDefaults(500*time.Millisecond, 30*time.Second)
	switch {
	case c.Prefetch < w.Batch:
		return c, fmt.Errorf("%w: sqsonce: Prefetch must be at least Workers.Batch, %d, but is %d (no batch would ever be full)", everonce.ErrInvalidArgument, w.Batch, c.Prefetch)
	case c.Visibility < 3*time.Second || c.Visibility > maxInHand || c.Visibility%time.Second != 0:
		return c, fmt.Errorf("%w: sqsonce: Visibility is %v, and must be whole seconds from 3s to 12h", everonce.ErrInvalidArgument, c.Visibility)
	case c.Wait > 20*time.Second || c.Wait%time.Second != 0:
		return c, fmt.Errorf("%w: sqsonce: Wait is %v, and must be whole seconds, at most 20s", everonce.ErrInvalidArgument, c.Wait)
	}
	turns := (c.Prefetch + w.Concurrency*w.Batch - 1) / (w.Concurrency * w.Batch)
	if w.Order != nil { // all of them may be handled one after the other
		turns = c.Prefetch
	}
	most := (maxInHand - margin - w.SettleTimeout) / time.Duration(turns)
	w.HandleTimeout = cmp.Or(w.HandleTimeout, min(defaultHandleTimeout, most))
	if w.HandleTimeout > most {
		return c, fmt.Errorf("%w: sqsonce: Workers.HandleTimeout is %v, and may be at most %v: SQS takes a message back after 12h, and it may wait for %d others (lower Prefetch)",
			everonce.ErrInvalidArgument, w.HandleTimeout, most, turns-1)
	}
	return c, nil
}
