package sqsonce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// Consumer delivers the messages of a queue to a [consume.Consumer].
type Consumer struct {
	client      Client
	queue, dead *place
	envelope    Envelope
	handler     *consume.Consumer
	opts        Options
	inflight    *inflight

	mu  sync.Mutex
	ran bool
}

// Dial looks up the queues. ctx bounds Dial only; no message is received before [Consumer.Run]. client is an
// [*sqs.Client], which has region, credentials and endpoint. opts may be nil. The error wraps
// [everonce.ErrInvalidArgument] if an argument is invalid, [ErrTopology] if a queue does not exist, [ErrUnreachable]
// if SQS does not answer or refuses the credentials, and the cause of ctx if ctx has ended.
func Dial(ctx context.Context, client Client, queue Queue, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: sqsonce: the handler is nil", everonce.ErrInvalidArgument)
	}
	if handler.Offsets() != nil {
		return nil, fmt.Errorf("%w: sqsonce: the handler has TxSpec.Offsets, which are for Kafka", everonce.ErrInvalidArgument)
	}
	if opts != nil {
		if err := handler.CheckWorkers(&opts.Workers); err != nil {
			return nil, err
		}
	}
	source, dead, err := findBoth(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if source.maxReceives > 0 && source.maxReceives < fewReceives {
		o.Workers.Log.WarnContext(ctx, "sqsonce: the queue's maxReceiveCount is low: SQS moves a message to the dead letters after so many receipts, handled or not",
			"consumer", handler.Name(), "queue", source.name, "max_receive_count", source.maxReceives)
	}
	if kept := source.retention + dead.retention; handler.Remembers() > 0 && handler.Remembers() < kept {
		o.Workers.Log.WarnContext(ctx, "sqsonce: SQS keeps a message longer than the consumer remembers it: it would take effect again (make Spec.Lifetime longer)",
			"consumer", handler.Name(), "queue", source.name, "kept", kept, "remembered", handler.Remembers())
	}
	most := maxReceive
	if source.fifo() { // if the first one failed, the others of its group would be given back, each with a counted receipt
		most = 1
	}
	return &Consumer{client: client, queue: source, dead: dead, envelope: queue.Envelope, handler: handler, opts: o, inflight: newInflight(o.Prefetch, most)}, nil
}

// fewReceives is a maxReceiveCount below which SQS may move a message before the default of
// [consume.RetryPolicy].Limit is reached.
const fewReceives = 20

var errRan = fmt.Errorf("%w: sqsonce: the consumer already ran (make a new one with Dial)", everonce.ErrInvalidArgument)

// Run handles messages until ctx ends. Then it drains: it receives no more, gives back the messages that no handler
// has started, and lets handlers finish within [consume.Workers.DrainTimeout]. If SQS answers the last request after
// more than a second, its messages come again after Visibility. Run goes on when SQS does not answer. It may be called
// once. It returns the error of [consume.Consumer.Serve].
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	ran := c.ran
	c.ran = true
	c.mu.Unlock()
	if ran {
		return errRan
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := c.serve(ctx, &c.opts.Workers)
	go func() {
		<-s.ended
		end() // Serve may have returned an error
	}()
	for {
		room := c.inflight.room(ctx)
		if room == 0 {
			break
		}
		ds := c.receive(ctx, room)
		for _, l := range lines(ds) {
			s.feed(ctx, l)
		}
	}
	return s.wait()
}

// serving is one run of the handler.
type serving struct {
	in      chan consume.Delivery
	ended   chan struct{}
	err     error // of Serve
	feeding sync.WaitGroup
}

func (c *Consumer) serve(ctx context.Context, workers *consume.Workers) *serving {
	s := &serving{in: make(chan consume.Delivery), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = c.handler.Serve(ctx, s.in, workers)
	}()
	return s
}

// feed hands out the messages of a line, and gives back the rest of it.
func (s *serving) feed(ctx context.Context, l line) {
	s.feeding.Go(func() {
		l.feed(ctx, s.in, s.ended).giveBack()
	})
}

// wait returns when all lines and the handler have ended.
func (s *serving) wait() error {
	s.feeding.Wait()
	close(s.in)
	<-s.ended
	return s.err
}

// receive requests messages until it gets some, or ctx ends.
func (c *Consumer) receive(ctx context.Context, most int) []*delivery {
	for failures := 0; ctx.Err() == nil; {
		asked := time.Now()
		out, err := c.ask(ctx, most)
		if err == nil && len(out.Messages) > 0 {
			return c.take(ctx, out.Messages, asked)
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		pause := retry.Within(c.opts.Backoff.Min, c.opts.Backoff.Max, failures)
		c.opts.Workers.Log.WarnContext(ctx, "sqsonce: no answer", "consumer", c.handler.Name(), "queue", c.queue.name, "pause", pause, "error", err)
		retry.Pause(ctx, pause) //nolint:errcheck // the loop checks ctx
	}
	return nil
}

// lastAnswer is how long the last request waits for its answer after ctx has ended. Messages of a lost answer would
// stay hidden, and no consumer would have them.
const lastAnswer = time.Second

// ask requests messages once. Because the connection may be half open, it waits little longer than SQS does.
func (c *Consumer) ask(ctx context.Context, most int) (*sqs.ReceiveMessageOutput, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Wait+c.opts.Workers.SettleTimeout)
	defer cancel()
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(lastAnswer, cancel) })
	defer forget()
	return c.client.ReceiveMessage(asking, &sqs.ReceiveMessageInput{
		QueueUrl: &c.queue.url, MaxNumberOfMessages: int32(most), //nolint:gosec // at most 10
		VisibilityTimeout: int32(c.opts.Visibility.Seconds()), WaitTimeSeconds: int32(c.opts.Wait.Seconds()),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}, MessageAttributeNames: []string{"All"},
	})
}

// take starts the heartbeats of messages. A message that is not in its envelope becomes a dead letter.
func (c *Consumer) take(ctx context.Context, raws []types.Message, asked time.Time) (ds []*delivery) {
	for i := range raws {
		d, err := c.delivery(&raws[i], asked)
		if !c.inflight.add(d) {
			continue
		}
		d.beat(c.opts.Visibility / 3)
		if err != nil {
			c.setAsideUnread(ctx, d, err)
			continue
		}
		ds = append(ds, d)
	}
	return ds
}

func (c *Consumer) delivery(raw *types.Message, asked time.Time) (*delivery, error) {
	m, n := messageOf(raw, c.queue.name)
	d := &delivery{
		c: c, raw: *raw, m: m, note: n, handle: aws.ToString(raw.ReceiptHandle), received: asked,
		beating: func() {}, answer: make(chan bool, 1),
	}
	if c.queue.fifo() {
		d.group = raw.Attributes["MessageGroupId"]
	}
	return d, c.envelope.unwrap(m)
}

// setAsideUnread makes a dead letter of a message that is not in its envelope. If that fails, the message comes again.
func (c *Consumer) setAsideUnread(ctx context.Context, d *delivery, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Workers.SettleTimeout)
	defer cancel()
	letter := consume.Death{
		Reason: consume.Undecodable, Detail: why.Error(), Consumer: c.handler.Name(), Source: c.queue.name,
		Attempts: d.m.Deliveries, First: d.m.First, Last: time.Now(),
	}
	err := d.SetAside(ctx, letter)
	if err == nil {
		c.handler.ObserveSetAside(ctx, d.m, letter)
	}
	c.opts.Workers.Log.WarnContext(ctx, "sqsonce: a message is not in its envelope", "consumer", c.handler.Name(), "queue", c.queue.name, "error", errors.Join(why, err))
	d.end(err == nil)
}
