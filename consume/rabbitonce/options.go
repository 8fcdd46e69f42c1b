package rabbitonce

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Options say how a consumer runs. The zero value of each field is its default.
type Options struct {
	// Workers say how messages are handled. The broker closes the channel of a message that is in hand for longer
	// than AckTimeout. Default: those of [consume.Workers], but 10 minutes of HandleWithin, or less where AckTimeout
	// does not allow for that: with a large Prefetch, or with Workers.Order. [Dial] logs how long it is then.
	Workers consume.Workers
	// Prefetch is how many messages the broker sends ahead. They count as in hand. Default twice what is handled at a
	// time: Workers.Concurrency, and as many times Workers.Batch. Less than a batch, or more than 65,535, is refused.
	// The more wait in hand, the less time each may take: AckTimeout is shared by those that follow each other.
	Prefetch int
	// AckTimeout is the broker's consumer_timeout. Settings under which a message, with those prefetched before it,
	// may take longer are refused. Default 30 minutes, as is the broker's.
	AckTimeout time.Duration
	// URLs, if set, is asked for the URLs of the brokers whenever a connection is to be made, in place of a fixed one: for
	// passwords and tokens that expire, and for the nodes of a cluster. They are tried in their order, but for one that took a
	// connection and did not serve the queue, which goes last then. It may be called concurrently, and must return when its context ends, after 15 s at the latest. An error of it is that of [Dial];
	// later it is logged, and the connection is tried again as after a loss. Default: the URL that Dial was given.
	URLs func(context.Context) ([]string, error)
	// TLS is for amqps:// URLs, and refused with any other: the roots to trust, the name to expect, a client's
	// certificate. Default: the system's roots and the name in the URL, or what the URL's parameters cacertfile,
	// certfile, keyfile and server_name_indication say.
	TLS *tls.Config
	// Heartbeat is the interval that the broker is asked for, in whole seconds; a connection that is silent for three
	// intervals is lost, and one that the broker does not read for as long, or for Workers.SettleWithin where a copy is
	// on its way. At least 1 s. Default 10 s.
	Heartbeat time.Duration
	// Name is the name of the connections for operators. Default: the consumer's name and the queue.
	Name string
	// ReconnectMin and ReconnectMax bound the pause before a lost connection is made again; it grows as long as that
	// fails. Default 500 ms and 30 s.
	ReconnectMin, ReconnectMax time.Duration
}

const (
	defaultConcurrency  = 8
	defaultHandleWithin = 10 * time.Minute
	defaultSettleWithin = 10 * time.Second
	defaultAckTimeout   = 30 * time.Minute
)

// checked returns o with its defaults.
func (o *Options) checked(consumer, queue string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Workers.Concurrency < 0 || c.Workers.Batch < 0 || c.Prefetch < 0 || c.AckTimeout < 0 || c.Heartbeat < 0 || c.ReconnectMin < 0 || c.ReconnectMax < 0 {
		return c, fmt.Errorf("%w: no number of Options may be negative", everonce.ErrInvalidArgument)
	}
	w := &c.Workers
	w.Concurrency = cmp.Or(w.Concurrency, defaultConcurrency)
	w.SettleWithin = cmp.Or(w.SettleWithin, defaultSettleWithin)
	if w.Log == nil {
		w.Log = slog.Default()
	}
	w.Batch = cmp.Or(w.Batch, 1)
	if c.Prefetch == 0 {
		c.Prefetch = math.MaxUint16 // more the protocol cannot say
		if most := math.MaxUint16 / 2 / w.Batch; w.Concurrency <= most {
			c.Prefetch = 2 * w.Concurrency * w.Batch
		}
	}
	if c.Prefetch > math.MaxUint16 {
		return c, fmt.Errorf("%w: Prefetch is %d, and AMQP can say no more than %d", everonce.ErrInvalidArgument, c.Prefetch, math.MaxUint16)
	}
	if c.Prefetch < w.Batch {
		return c, fmt.Errorf("%w: a batch has up to %d messages (Workers.Batch), and %d are sent ahead (Prefetch): none would ever be full", everonce.ErrInvalidArgument, w.Batch, c.Prefetch)
	}
	c.AckTimeout = cmp.Or(c.AckTimeout, defaultAckTimeout)
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	if c.Heartbeat < time.Second {
		return c, fmt.Errorf("%w: Heartbeat is %v, and AMQP can say no less than a second", everonce.ErrInvalidArgument, c.Heartbeat)
	}
	c.Name = cmp.Or(c.Name, consumer+" on "+queue)
	c.ReconnectMin = cmp.Or(c.ReconnectMin, 500*time.Millisecond)
	c.ReconnectMax = max(cmp.Or(c.ReconnectMax, 30*time.Second), c.ReconnectMin)
	most := c.longest()
	w.HandleWithin = cmp.Or(w.HandleWithin, min(defaultHandleWithin, most))
	return c, c.checkTimes(most)
}

// longest is how long a handler, or a batch, may take so that no message is in hand for longer than AckTimeout: a message waits for
// those before it, and is handled and answered then.
func (o *Options) longest() time.Duration {
	workers := o.Workers.Concurrency
	if o.Workers.Order != nil { // all of them may have one name, and be handled one after the other
		workers = 1
	}
	batches := (o.Prefetch + o.Workers.Batch - 1) / o.Workers.Batch
	turns := (batches-1)/workers + 1
	return (o.AckTimeout - o.Workers.SettleWithin) / time.Duration(turns)
}

// checkTimes refuses what the broker would end.
func (o *Options) checkTimes(most time.Duration) error {
	if most <= 0 {
		return fmt.Errorf("%w: an answer to the broker may take %v (Workers.SettleWithin), and the broker closes a channel when a message is in hand for %v (AckTimeout): that leaves no time to handle one",
			everonce.ErrInvalidArgument, o.Workers.SettleWithin, o.AckTimeout)
	}
	if o.Workers.HandleWithin > most {
		how := fmt.Sprintf("are handled by %d workers", o.Workers.Concurrency)
		if o.Workers.Order != nil {
			how = "may all have to be handled one after the other (Workers.Order)"
		}
		return fmt.Errorf("%w: a handler may take %v (Workers.HandleWithin), and %d messages that were sent ahead (Prefetch) %s: the broker closes a channel when a message is in hand for %v (AckTimeout)",
			everonce.ErrInvalidArgument, o.Workers.HandleWithin, o.Prefetch, how, o.AckTimeout)
	}
	return nil
}
