package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// Consumer delivers the messages of a queue to a [consume.Consumer].
type Consumer struct {
	queue   Queue
	handler *consume.Consumer
	opts    Options
	dialing dialing
	out     *publisher

	alone int // how many messages are still to be taken one by one, see undeliverable; used only by feed

	mu    sync.Mutex
	first *session // made by Dial
	ran   bool
}

// Dial connects to a broker, and declares or checks the queues. ctx bounds Dial only. No message is consumed before
// [Consumer.Run]. url is amqp://user:password@host:port/vhost, or amqps://…; it must be empty if [Options].URLs is set,
// and no error contains it. opts may be nil. The error wraps [everonce.ErrInvalidArgument] if an argument is invalid,
// [ErrUnreachable] if there is no connection, [ErrTopology] if a queue does not exist or has other arguments, and the
// cause of ctx if ctx has ended.
func Dial(ctx context.Context, url string, queue Queue, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: rabbitonce: the handler is nil", everonce.ErrInvalidArgument)
	}
	if handler.Offsets() != nil {
		return nil, fmt.Errorf("%w: rabbitonce: the handler has TxSpec.Offsets, which are for Kafka", everonce.ErrInvalidArgument)
	}
	if opts != nil {
		if err := handler.CheckWorkers(&opts.Workers); err != nil {
			return nil, err
		}
	}
	q, err := queue.withDefaults()
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults(handler.Name(), q.Name)
	if err != nil {
		return nil, err
	}
	if opts != nil && opts.Workers.HandleTimeout == 0 && o.Workers.HandleTimeout < defaultHandleTimeout {
		o.Workers.Log.Info("rabbitonce: HandleTimeout is shorter than its default, to keep messages within AckTimeout", "consumer", handler.Name(), "queue", q.Name,
			"handle_within", o.Workers.HandleTimeout, "prefetch", o.Prefetch, "ack_timeout", o.AckTimeout)
	}
	d, err := o.dialing(url)
	if err != nil {
		return nil, err
	}
	c := &Consumer{queue: q, handler: handler, opts: o, dialing: d, out: newPublisher(d)}
	if c.first, err = c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

var errRan = fmt.Errorf("%w: rabbitonce: the consumer already ran or was closed (make a new one with Dial)", everonce.ErrInvalidArgument)

// Run handles messages until ctx ends. Then it drains: it cancels the subscription, returns prefetched messages to the
// queue, lets handlers finish within [consume.Workers.DrainTimeout], and closes the connections, which returns
// unanswered messages to the queue. Run reconnects after the loss of a connection, for as long as it takes. It may be
// called once. It returns the error of [consume.Consumer.Serve], or of closing the connections.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.ran {
		c.mu.Unlock()
		return errRan
	}
	c.ran = true
	s := c.first
	c.first = nil
	c.mu.Unlock()

	ctx, end := context.WithCancel(ctx)
	defer end()
	in := make(chan consume.Delivery)
	served := make(chan error, 1)
	go func() {
		defer end() // Serve may have returned an error
		served <- c.handler.Serve(ctx, in, &c.opts.Workers)
	}()
	s = c.feed(ctx, s, in)
	if s != nil {
		s.leave()
	}
	err := <-served
	if s != nil {
		err = errors.Join(err, s.conn.hangUp())
	}
	return errors.Join(err, c.out.close())
}

// feed keeps a session open until ctx ends, and returns the open session, if any. Each session has a new connection
// and a new channel. The client's own recovery reuses the Channel, so an acknowledgement of an earlier delivery could
// reach a message that was not handled.
func (c *Consumer) feed(ctx context.Context, s *session, in chan<- consume.Delivery) *session {
	log, again := c.opts.Workers.Log, false
	for failures := 0; ; {
		var err error
		if s == nil {
			if s, err = c.connect(ctx); err != nil {
				c.dialing.skip++
			} else {
				s.again = again
				log.InfoContext(ctx, "rabbitonce: reconnected", "consumer", c.handler.Name(), "queue", c.queue.Name, "broker", s.conn.host)
			}
		}
		if s != nil {
			var agreed bool
			if agreed, err = s.feed(ctx, c, in); err == nil {
				return s
			}
			if c.dialing.skip++; agreed { // the session had started, so this is a new failure
				failures, c.dialing.skip = 0, 0
			}
			if c.alone = s.alone; s.undeliverable(err) {
				c.alone = c.opts.Prefetch
				log.WarnContext(ctx, "rabbitonce: "+suspicion(err)+"; taking messages one by one for a while", "consumer", c.handler.Name(), "queue", c.queue.Name, "messages", c.alone)
			}
			again = s.lostOverDelivery()
			err = errors.Join(err, s.conn.hangUp())
			s = nil
		}
		if ctx.Err() != nil {
			return nil
		}
		failures++
		pause := retry.Within(c.opts.Backoff.Min, c.opts.Backoff.Max, failures)
		log.WarnContext(ctx, "rabbitonce: not connected", "consumer", c.handler.Name(), "queue", c.queue.Name, "pause", pause, "error", err)
		if retry.Pause(ctx, pause) != nil {
			return nil
		}
	}
}

// Close closes the connection of a consumer that did not run. After [Consumer.Run] it does nothing.
func (c *Consumer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran = true
	if c.first == nil {
		return nil
	}
	s := c.first
	c.first = nil
	return s.conn.hangUp()
}
