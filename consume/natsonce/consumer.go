package natsonce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// Consumer delivers the messages of a durable consumer to a [consume.Consumer].
type Consumer struct {
	queue      Queue
	handler    *consume.Consumer
	opts       Options
	conn       *connection
	from       *established
	unanswered unanswered

	setAside atomic.Bool // a schedule was set aside since the last look

	mu  sync.Mutex
	ran bool
}

// Dial connects to a server, and declares or checks what the queue needs. ctx bounds Dial only. No message is consumed
// before [Consumer.Run]. servers is nats://user:password@host:port, or several separated by commas; no error contains
// it. opts may be nil. The error wraps [everonce.ErrInvalidArgument] if an argument is invalid, [ErrUnreachable] if
// there is no connection or no JetStream, [ErrTopology] if a stream does not exist or the durable consumer cannot be
// used, and the cause of ctx if ctx has ended.
func Dial(ctx context.Context, servers string, queue Queue, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: natsonce: the handler is nil", everonce.ErrInvalidArgument)
	}
	if handler.Offsets() != nil {
		return nil, fmt.Errorf("%w: natsonce: the handler has TxSpec.Offsets, which are for Kafka", everonce.ErrInvalidArgument)
	}
	if opts != nil {
		if err := handler.CheckWorkers(&opts.Workers); err != nil {
			return nil, err
		}
	}
	q, err := queue.withDefaults(handler.Name())
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults(handler.Name(), q.Stream)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, o.Name, o.Workers.Log, o.Connect...)
	if err != nil {
		return nil, err
	}
	c := &Consumer{queue: q, handler: handler, opts: o, conn: conn}
	if c.from, err = c.establish(ctx, nil); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return c, nil
}

// establish calls establish of the queue, and logs its warnings.
func (c *Consumer) establish(ctx context.Context, last *established) (*established, error) {
	e, err := c.queue.establish(ctx, c.conn.js, last, c.handler.Remembers())
	if err != nil {
		return nil, err
	}
	for _, warning := range e.warnings {
		c.opts.Workers.Log.WarnContext(ctx, "natsonce: "+warning, "consumer", c.handler.Name(), "stream", c.queue.Stream)
	}
	return e, nil
}

var errRan = fmt.Errorf("%w: natsonce: the consumer already ran or was closed (make a new one with Dial)", everonce.ErrInvalidArgument)

// Run handles messages until ctx ends. Then it drains: it lets handlers finish within [consume.Workers.DrainTimeout],
// gives back the messages that were not answered, and closes the connection. Run reconnects after the loss of the
// connection, for as long as it takes. It may be called once. It returns the error of [consume.Consumer.Serve], or of
// closing the connection. The error wraps [ErrUnreachable] if the client library gave the connection up, which an
// option in [Options.Connect] may make it do.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.once() {
		return errRan
	}
	ctx, end := undated(ctx)
	defer end()
	in := make(chan consume.Delivery, c.fetched())
	served := make(chan error, 1)
	go func() {
		defer end() // Serve may have returned an error
		served <- c.handler.Serve(ctx, in, &c.opts.Workers)
	}()
	fed := c.feed(ctx, in)
	end()
	err := errors.Join(<-served, fed)
	for _, d := range c.unanswered.all() {
		d.giveBack()
	}
	return errors.Join(err, c.conn.hangUp())
}

// undated returns a context that ends when ctx does, but has no deadline. With a deadline, nats.go would wait until
// then for an answer that was lost with its connection; without one, it uses its default timeout.
func undated(ctx context.Context) (context.Context, context.CancelFunc) {
	until, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	return until, func() { stop(); end(nil) }
}

func (c *Consumer) once() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.ran
	c.ran = true
	return first
}

// Close closes the connection of a consumer that did not run. After [Consumer.Run] it does nothing.
func (c *Consumer) Close() error {
	if !c.once() {
		return nil
	}
	return c.conn.hangUp()
}

// fetched is how many messages a request asks for: as many as are handled at a time, so that as many wait.
func (c *Consumer) fetched() int { return c.opts.Workers.Concurrency * c.opts.Workers.Batch }

const (
	// fetchTimeout is how long a request waits for messages. The server sends heartbeats meanwhile.
	fetchTimeout = 20 * time.Second
	// lastWithin is how long a request continues at the end, so that messages on their way are received and given back.
	// Otherwise they would wait for AckWait.
	lastWithin = 200 * time.Millisecond
	// lookEvery is the interval at which the server is asked for the consumer's progress.
	lookEvery = 10 * time.Second
)

// feed hands messages to Serve until ctx ends, or until the connection is closed for good, which is an error.
func (c *Consumer) feed(ctx context.Context, in chan<- consume.Delivery) error {
	crowded := false // which was logged
	c.warnIfCrowded(ctx, &crowded)
	for failures := 0; ctx.Err() == nil && !c.conn.IsClosed(); {
		if schedules := c.setAside.Swap(false); schedules || time.Since(c.from.seen) > lookEvery {
			c.from = c.from.look(ctx, schedules)
			c.warnIfCrowded(ctx, &crowded)
		}
		err := c.fetch(ctx, in)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		c.pause(ctx, failures, "natsonce: no messages can be fetched", err)
	}
	if c.conn.IsClosed() {
		return errors.Join(fmt.Errorf("%w: the connection was closed, and is not made again", ErrUnreachable), c.conn.LastError())
	}
	return nil
}

// warnIfCrowded logs once that schedules leave little room for messages, until there is more room again.
func (c *Consumer) warnIfCrowded(ctx context.Context, logged *bool) {
	warning := c.from.crowded(len(c.unanswered.all()))
	if warning != "" && !*logged {
		c.opts.Workers.Log.WarnContext(ctx, "natsonce: "+warning, "consumer", c.handler.Name(), "stream", c.queue.Stream)
	}
	*logged = warning != ""
}

// pause waits after a failure, and then restores what was deleted at the server. It reports whether to go on.
func (c *Consumer) pause(ctx context.Context, failures int, what string, err error) bool {
	if ctx.Err() != nil || c.conn.IsClosed() {
		return false
	}
	pause := retry.Within(c.opts.Backoff.Min, c.opts.Backoff.Max, failures)
	c.opts.Workers.Log.WarnContext(ctx, what, "consumer", c.handler.Name(), "stream", c.queue.Stream, "pause", pause, "error", err)
	if retry.Pause(ctx, pause) != nil {
		return false
	}
	if from, err := c.establish(ctx, c.from); err == nil {
		c.from = from
	}
	return true
}

// fetch hands over the messages of one request, which ends with its connection. A heartbeat keeps each message from
// its receipt on, also while it waits for earlier ones.
func (c *Consumer) fetch(ctx context.Context, in chan<- consume.Delivery) error {
	if !c.conn.IsConnected() {
		return nats.ErrDisconnected // nats.go would leak the subscription of a request that it cannot send
	}
	changed := c.conn.StatusChanged(nats.CONNECTED, nats.CLOSED) // from here on: an earlier change would end a good request
	defer c.conn.RemoveStatusListener(changed)
	from := c.from
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost(fetchTimeout, from.config.MaxRequestExpires))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, cancel) })
	defer stop()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-within.Done():
		}
	}()
	size := atMost(c.fetched(), from.config.MaxRequestBatch)
	batch, err := from.consumer.Fetch(size, jetstream.FetchContext(within))
	if err != nil {
		return err
	}
	taken := make(chan *delivery, size)
	go func() {
		defer close(taken)
		for msg := range batch.Messages() {
			if at, err := msg.Metadata(); err == nil { // otherwise it comes from no stream
				d := &delivery{c: c, from: from, msg: msg, at: at}
				c.unanswered.add(d)
				if isSchedule(msg.Headers()) {
					d.setAside(ctx)
					continue
				}
				taken <- d
			}
		}
	}()
	for d := range taken {
		if !c.toHandle(ctx, d) {
			continue
		}
		select {
		case in <- d:
		case <-ctx.Done(): // unanswered messages are given back
		}
	}
	if err := batch.Error(); err != nil && within.Err() == nil {
		return err
	}
	return nil
}

// atMost returns n, or the server's limit if it has one that is lower.
func atMost[T int | time.Duration](n, limit T) T {
	if limit > 0 {
		return min(n, limit)
	}
	return n
}

// toHandle reads the count of a message, for as long as that takes, and reports whether the message is to be handled.
func (c *Consumer) toHandle(ctx context.Context, d *delivery) bool {
	for failures := 1; ; failures++ {
		var err error
		if d.count, err = countOf(ctx, d.from.counts, d.at); err == nil {
			break
		}
		if !c.pause(ctx, failures, "natsonce: a message waits for its count of retries", err) {
			return false
		}
	}
	d.m = messageOf(d.msg, d.at, d.count)
	if unanswered := d.m.Deliveries - 1 - d.count.answered; unanswered < c.queue.DeliveryLimit {
		return true
	}
	if err := d.setAsideUnanswered(ctx); err != nil {
		c.opts.Workers.Log.WarnContext(ctx, "natsonce: a message was given back", "consumer", c.handler.Name(), "stream", c.queue.Stream, "error", err)
	}
	return false
}

// setAsideUnanswered makes a dead letter of a message whose deliveries ended without an answer.
func (d *delivery) setAsideUnanswered(ctx context.Context) error {
	letter := consume.Death{
		Reason: "broker_delivery_limit", Detail: fmt.Sprintf("%d deliveries ended without an answer", d.c.queue.DeliveryLimit),
		Consumer: d.c.handler.Name(), Source: d.m.Source, Attempts: d.m.Retries + 1, First: d.m.First, Last: time.Now(),
	}
	if err := d.SetAside(ctx, letter); err != nil {
		d.c.unanswered.remove(d)
		return errors.Join(err, d.msg.NakWithDelay(d.c.opts.Backoff.Max))
	}
	d.c.handler.ObserveSetAside(ctx, d.m, letter)
	d.c.opts.Workers.Log.WarnContext(ctx, "natsonce: message dead-lettered, because its deliveries ended without an answer", "consumer", d.c.handler.Name(), "stream", d.c.queue.Stream, "sequence", d.at.Sequence.Stream)
	return nil
}

// mended calls fn, and calls it again once if the stream that fn writes to was deleted and could be declared again.
func (d *delivery) mended(ctx context.Context, fn func() error) error {
	err := fn()
	if errors.Is(err, jetstream.ErrNoStreamResponse) && d.c.queue.Topology == DeclareOwn {
		if _, undeclared := d.c.establish(ctx, d.from); undeclared == nil {
			err = fn()
		}
	}
	return err
}
