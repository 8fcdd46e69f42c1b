package rabbitonce

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Options configure a consumer. The zero value of each field is its default; negative values are errors.
type Options struct {
	// Workers configure the handling of messages. Default: as for [consume.Workers], with 10 minutes of HandleTimeout. If
	// AckTimeout is too short for that, as with a large Prefetch or with Workers.Order, HandleTimeout is shorter, and
	// [Dial] logs it.
	Workers consume.Workers
	// Prefetch is how many unacknowledged messages the broker delivers. Default 2 × Workers.Concurrency ×
	// Workers.Batch. It must be at least Workers.Batch and at most 65,535. The larger it is, the less time a handler has,
	// because prefetched messages wait for each other within AckTimeout.
	Prefetch int
	// AckTimeout is the broker's consumer_timeout, after which it closes the channel of an unacknowledged message.
	// Options under which a message may wait longer, with those prefetched before it, are an error. Default 30 minutes,
	// as in the broker.
	AckTimeout time.Duration
	// URLs, if set, returns the URLs of the brokers before each connection: for passwords and tokens that expire, and for
	// the nodes of a cluster. They are tried in order; a node that accepted a connection but did not serve the queue is
	// tried last. URLs may be called concurrently, and must return when its context ends, after at most 15 s. [Dial]
	// returns its error; later errors are logged, and the consumer tries to connect again. Default: the URL given to
	// Dial.
	URLs func(context.Context) ([]string, error)
	// TLS is the configuration for amqps:// URLs, and an error with others. Default: the system's roots and the host of
	// the URL, or the URL's parameters cacertfile, certfile, keyfile and server_name_indication.
	TLS *tls.Config
	// Heartbeat is the interval of heartbeats, in whole seconds. A connection is closed if the broker sends or reads
	// nothing for three intervals, or does not read a copy within Workers.SettleTimeout. At least 1 s. Default 10 s.
	Heartbeat time.Duration
	// Name is the name of the connections, which operators see. Default: the names of the consumer and the queue.
	Name string
	// Backoff bounds the pause before a reconnect. Default 500 ms and 30 s.
	Backoff consume.Backoff
}

const (
	defaultHandleTimeout = 10 * time.Minute
	defaultAckTimeout    = 30 * time.Minute
)

// withDefaults returns o with its defaults, or an error that wraps [everonce.ErrInvalidArgument].
func (o *Options) withDefaults(consumer, queue string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Workers.Concurrency < 0 || c.Workers.Batch < 0 || c.Prefetch < 0 || c.AckTimeout < 0 || c.Heartbeat < 0 || c.Backoff.Min < 0 || c.Backoff.Max < 0 {
		return c, fmt.Errorf("%w: rabbitonce: no field of Options may be negative", everonce.ErrInvalidArgument)
	}
	c.Workers = c.Workers.WithDefaults()
	w := &c.Workers
	if c.Prefetch == 0 {
		c.Prefetch = math.MaxUint16 // the protocol's maximum
		if most := math.MaxUint16 / 2 / w.Batch; w.Concurrency <= most {
			c.Prefetch = 2 * w.Concurrency * w.Batch
		}
	}
	if c.Prefetch > math.MaxUint16 {
		return c, fmt.Errorf("%w: rabbitonce: Prefetch is %d, and must be at most %d", everonce.ErrInvalidArgument, c.Prefetch, math.MaxUint16)
	}
	if c.Prefetch < w.Batch {
		return c, fmt.Errorf("%w: rabbitonce: Prefetch must be at least Workers.Batch, %d, but is %d (no batch would ever be full)", everonce.ErrInvalidArgument, w.Batch, c.Prefetch)
	}
	c.AckTimeout = cmp.Or(c.AckTimeout, defaultAckTimeout)
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	if c.Heartbeat < time.Second {
		return c, fmt.Errorf("%w: rabbitonce: Heartbeat is %v, and must be at least 1s", everonce.ErrInvalidArgument, c.Heartbeat)
	}
	c.Name = cmp.Or(c.Name, consumer+" on "+queue)
	c.Backoff = c.Backoff.WithDefaults(500*time.Millisecond, 30*time.Second)
	most := c.longest()
	w.HandleTimeout = cmp.Or(w.HandleTimeout, min(defaultHandleTimeout, most))
	return c, c.checkTimes(most)
}

// longest returns how long a handler, or a batch, may take so that no message is unanswered for longer than
// AckTimeout: a message waits for earlier ones, and then takes its own time.
func (o *Options) longest() time.Duration {
	workers := o.Workers.Concurrency
	if o.Workers.Order != nil { // all may have the same ordering key, and be handled one after the other
		workers = 1
	}
	batches := (o.Prefetch + o.Workers.Batch - 1) / o.Workers.Batch
	turns := (batches-1)/workers + 1
	return (o.AckTimeout - o.Workers.SettleTimeout) / time.Duration(turns)
}

// checkTimes returns an error for timeouts after which the broker would close the channel.
func (o *Options) checkTimes(most time.Duration) error {
	if most <= 0 {
		return fmt.Errorf("%w: rabbitonce: Workers.SettleTimeout, %v, leaves no time to handle a message within AckTimeout, %v",
			everonce.ErrInvalidArgument, o.Workers.SettleTimeout, o.AckTimeout)
	}
	if o.Workers.HandleTimeout > most {
		how := fmt.Sprintf("share %d workers", o.Workers.Concurrency)
		if o.Workers.Order != nil {
			how = "may be handled one after the other (Workers.Order)"
		}
		return fmt.Errorf("%w: rabbitonce: Workers.HandleTimeout, %v, is too long: %d prefetched messages %s, and the broker closes the channel if one is not acknowledged within %v (AckTimeout)",
			everonce.ErrInvalidArgument, o.Workers.HandleTimeout, o.Prefetch, how, o.AckTimeout)
	}
	return nil
}
