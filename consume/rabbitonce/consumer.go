package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Consumer passes messages from a queue to a [consume.Consumer].
type Consumer struct {
	queue   Queue
	handler *consume.Consumer
	opts    Options
	dialing dialing
	out     *publisher

	alone int // how many messages have yet to come one by one: see unread; of what makes the sessions

	mu    sync.Mutex
	first *session // made by Dial
	ran   bool
}

// Dial connects to a broker, and declares or checks the queues. ctx bounds that, and nothing later. No message is taken before [Consumer.Run]. url is
// amqp://user:password@host:port/vhost, or amqps://…; no error quotes it. It is empty where [Options].URLs gives URLs. opts may be nil. The error wraps
// [everonce.ErrInvalidArgument] if an argument cannot work, [ErrUnreachable] if there is no connection,
// [ErrTopology] if a queue does not exist or is not as it must be, and the cause of ctx if that has ended.
func Dial(ctx context.Context, url string, queue Queue, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: the handler is nil", everonce.ErrInvalidArgument)
	}
	if opts != nil {
		if err := handler.CheckWorkers(&opts.Workers); err != nil {
			return nil, err
		}
	}
	q, err := queue.checked()
	if err != nil {
		return nil, err
	}
	o, err := opts.checked(handler.Name(), q.Name)
	if err != nil {
		return nil, err
	}
	if opts != nil && opts.Workers.HandleWithin == 0 && o.Workers.HandleWithin < defaultHandleWithin {
		o.Workers.Log.Info("rabbitonce: a handler has less time than by default, so that no message is in hand for longer than AckTimeout", "consumer", handler.Name(), "queue", q.Name,
			"handle_within", o.Workers.HandleWithin, "prefetch", o.Prefetch, "ack_timeout", o.AckTimeout)
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

var errRan = fmt.Errorf("%w: rabbitonce: a consumer runs once; it ran already, or was closed", everonce.ErrInvalidArgument)

// Run handles messages until ctx ends. Then it drains: the broker sends nothing more, messages that were sent ahead
// are given back, messages being handled are finished and acknowledged within [consume.Workers.DrainWithin], and the
// connections are closed, which gives the broker back what was kept in hand. A lost connection is made again, however
// long that takes. Run may be called once. The error wraps [everonce.ErrInvalidArgument], is that of
// [consume.Consumer.Serve] if the store cannot be used, or is that of closing.
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
		defer end() // it may refuse to begin
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

// feed keeps a session until ctx ends, and returns the one that is open then, if any. Each has a new connection and a new channel. The
// client's own recovery keeps the Channel, so an acknowledgement of an earlier delivery would reach a message that nobody has handled.
func (c *Consumer) feed(ctx context.Context, s *session, in chan<- consume.Delivery) *session {
	pause := &backoff.ExponentialBackOff{
		InitialInterval: c.opts.ReconnectMin, MaxInterval: c.opts.ReconnectMax, RandomizationFactor: 0.5, Multiplier: 2,
	}
	open, err := backoff.Retry(ctx, func() (*session, error) {
		if s == nil {
			var err error
			if s, err = c.connect(ctx); err != nil {
				c.dialing.skip++
				return nil, &toTryAgain{err}
			}
			c.opts.Workers.Log.InfoContext(ctx, "rabbitonce: connected again", "consumer", c.handler.Name(), "queue", c.queue.Name, "broker", s.conn.host)
		}
		agreed, err := s.feed(ctx, c, in)
		if err == nil {
			return s, nil
		}
		if c.dialing.skip++; agreed { // it was made: what is wrong now is something new
			pause.Reset()
			c.dialing.skip = 0
		}
		lost := s
		s = nil
		if c.alone = lost.alone; unread(err) {
			c.alone = c.opts.Prefetch
			c.opts.Workers.Log.WarnContext(ctx, "rabbitonce: a message cannot be read: messages come one by one for a while", "consumer", c.handler.Name(), "queue", c.queue.Name, "messages", c.alone)
		}
		return nil, &toTryAgain{errors.Join(err, lost.conn.hangUp())}
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0) /* by default it gives up after a quarter of an hour */, backoff.WithNotify(func(err error, next time.Duration) {
		c.opts.Workers.Log.WarnContext(ctx, "rabbitonce: the connection is lost, or was not made", "consumer", c.handler.Name(), "queue", c.queue.Name, "pause", next, "error", err)
	}))
	if err != nil { // ctx ended while there was none
		return nil
	}
	return open
}

// toTryAgain hides what an error is: that of Options.URLs may be a backoff.PermanentError, of a loop of its own, and would end this one.
type toTryAgain struct{ error }

// Close closes the connection of a consumer that was not run. After [Consumer.Run] it does nothing.
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
