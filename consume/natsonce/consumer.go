package natsonce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// Consumer delivers the messages of a durable consumer to a [consume.Consumer].
type Consumer struct {
	queue   Queue
	handler *consume.Consumer
	opts    Options
	conn    *connection
	from    *established
	hand    hand

	mu  sync.Mutex
	ran bool
}

// Dial connects to a server, and declares or checks what the queue needs. ctx bounds Dial only. No message is consumed
// before [Consumer.Run]. servers is nats://user:password@host:port, or several with commas between them; no error
// contains it. opts may be nil. The error wraps [everonce.ErrInvalidArgument] if an argument is invalid,
// [ErrUnreachable] if there is no connection or no JetStream, [ErrTopology] if a stream does not exist or the durable
// consumer cannot be used, and the cause of ctx if ctx has ended.
func Dial(ctx context.Context, servers string, queue Queue, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: natsonce: the handler is nil", everonce.ErrInvalidArgument)
	}
	if opts != nil {
		if err := handler.CheckWorkers(&opts.Workers); err != nil {
			return nil, err
		}
	}
	q, err := queue.checked(handler.Name())
	if err != nil {
		return nil, err
	}
	o, err := opts.checked(handler.Name(), q.Stream)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, o.Name, o.Workers.Log, o.Connect...)
	if err != nil {
		return nil, err
	}
	from, err := q.establish(ctx, conn.js)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &Consumer{queue: q, handler: handler, opts: o, conn: conn, from: from}, nil
}

var errRan = fmt.Errorf("%w: natsonce: the consumer already ran or was closed (make a new one with Dial)", everonce.ErrInvalidArgument)

// Run handles messages until ctx ends. Then it drains: it lets handlers finish within [consume.Workers.DrainWithin],
// gives the messages back that were not answered, and closes the connection. Run reconnects after the loss of the
// connection, for as long as it takes. It may be called once. The error is that of [consume.Consumer.Serve], or of
// closing the connection.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.once() {
		return errRan
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	in := make(chan consume.Delivery, c.fetched())
	served := make(chan error, 1)
	go func() {
		defer end() // it may refuse to begin
		served <- c.handler.Serve(ctx, in, &c.opts.Workers)
	}()
	c.feed(ctx, in)
	err := <-served
	for _, d := range c.hand.left() {
		d.giveBack()
	}
	return errors.Join(err, c.conn.hangUp())
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

// fetched is how many messages are asked for together: as many as are handled at a time, while as many wait.
func (c *Consumer) fetched() int { return c.opts.Workers.Concurrency * c.opts.Workers.Batch }

// fetchWithin is how long the server waits for messages. It says that it is there meanwhile.
const fetchWithin = 20 * time.Second

// feed hands messages over until ctx ends.
func (c *Consumer) feed(ctx context.Context, in chan<- consume.Delivery) {
	reconnected := c.conn.StatusChanged(nats.CONNECTED)
	defer c.conn.RemoveStatusListener(reconnected)
	for failures := 0; ctx.Err() == nil; {
		err := c.fetch(ctx, in, reconnected)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		pause := retry.Within(c.opts.PauseMin, c.opts.PauseMax, failures)
		c.opts.Workers.Log.WarnContext(ctx, "natsonce: no messages can be fetched", "consumer", c.handler.Name(), "stream", c.queue.Stream, "pause", pause, "error", err)
		if retry.Pause(ctx, pause) != nil {
			return
		}
		if from, err := c.queue.establish(ctx, c.conn.js); err == nil { // somebody may have deleted it
			c.from = from
		}
	}
}

// fetch hands over what comes by one request, which ends with its connection.
func (c *Consumer) fetch(ctx context.Context, in chan<- consume.Delivery, reconnected <-chan nats.Status) error {
	within, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	go func() {
		select {
		case <-reconnected:
			cancel()
		case <-within.Done():
		}
	}()
	batch, err := c.from.consumer.Fetch(c.fetched(), jetstream.FetchContext(within))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		d, err := c.received(ctx, msg)
		if err != nil {
			c.opts.Workers.Log.WarnContext(ctx, "natsonce: a message was given back", "consumer", c.handler.Name(), "stream", c.queue.Stream, "error", err)
			continue
		}
		if d == nil {
			continue
		}
		select {
		case in <- d:
		case <-ctx.Done(): // what is in hand is given back
		}
	}
	if err := batch.Error(); err != nil && within.Err() == nil {
		return err
	}
	return nil
}

// received takes a message in hand. It returns nil for one that needs no handler any more.
func (c *Consumer) received(ctx context.Context, msg jetstream.Msg) (*delivery, error) {
	at, err := msg.Metadata()
	if err != nil {
		return nil, err // of no stream
	}
	d := &delivery{c: c, from: c.from, msg: msg, at: at}
	c.hand.take(d)
	if d.count, err = countOf(ctx, d.from.counts, at); err != nil {
		c.hand.leave(d)
		return nil, errors.Join(err, msg.NakWithDelay(c.opts.PauseMin))
	}
	d.m = messageOf(msg, at, d.count)
	if unanswered := d.m.Deliveries - 1 - d.count.answered; unanswered < c.queue.DeliveryLimit {
		return d, nil
	}
	return nil, d.buryUnanswered(ctx)
}

// buryUnanswered makes a dead letter of a message that nobody lived to answer.
func (d *delivery) buryUnanswered(ctx context.Context) error {
	err := d.Bury(ctx, consume.DeadLetter{
		Reason: "broker_delivery_limit", Detail: fmt.Sprintf("%d deliveries ended without an answer", d.c.queue.DeliveryLimit),
		Consumer: d.c.handler.Name(), Source: d.m.Source, Attempts: d.m.Retries + 1, First: d.m.First, Last: time.Now(),
	})
	if err != nil {
		d.c.hand.leave(d)
		return errors.Join(err, d.msg.NakWithDelay(d.c.opts.PauseMax))
	}
	d.c.opts.Workers.Log.WarnContext(ctx, "natsonce: message dead-lettered, because nobody lived to answer it", "consumer", d.c.handler.Name(), "stream", d.c.queue.Stream, "sequence", d.at.Sequence.Stream)
	return nil
}

// mended calls fn, and again once what it writes to is there again, if somebody has deleted that.
func (c *Consumer) mended(ctx context.Context, fn func() error) error {
	err := fn()
	if errors.Is(err, jetstream.ErrNoStreamResponse) && c.queue.Topology == DeclareOwn {
		if _, undeclared := c.queue.establish(ctx, c.conn.js); undeclared == nil {
			err = fn()
		}
	}
	return err
}
