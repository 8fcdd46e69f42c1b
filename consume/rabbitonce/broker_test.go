package rabbitonce_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// soon is how long a test waits for what must happen. It is no claim about how long that takes.
const soon = 3 * time.Minute

var quiet = slog.New(slog.DiscardHandler)

func brokerURL(t testing.TB) string {
	t.Helper()
	return testserver.URL(t, "rabbitmq")
}

// bench is one test's queues on a broker.
type bench struct {
	t     testing.TB
	url   string
	queue rabbitonce.Queue
	conn  *amqp.Connection
	ch    *amqp.Channel
	// returns has the messages that were sent to a queue that does not exist.
	returns chan amqp.Return
}

// newBench returns queues of the test's own, which are gone after it.
func newBench(t testing.TB) *bench { return newBenchOn(t, brokerURL(t)) }

func newBenchOn(t testing.TB, url string) *bench {
	t.Helper()
	name := "test." + strings.ToLower(rand.Text())
	b := &bench{t: t, url: url, queue: rabbitonce.Queue{Name: name, DeadLetters: name + ".dead", Delays: []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}}}
	b.connect()
	t.Cleanup(func() {
		for _, q := range b.queues() {
			b.deleteQueue(q)
		}
		if err := b.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) queues() []string {
	return []string{b.queue.Name, b.queue.DeadLetters, b.queue.Name + ".retry.100ms", b.queue.Name + ".retry.400ms"}
}

// connect makes the test's own connection.
func (b *bench) connect() {
	b.t.Helper()
	var err error
	if b.conn, err = amqp.Dial(b.url); err != nil {
		b.t.Fatal(err)
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		b.t.Fatal(err)
	}
	b.returns = b.ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := b.ch.Confirm(false); err != nil {
		b.t.Fatal(err)
	}
}

// declare declares the queues, without a consumer.
func (b *bench) declare() {
	b.t.Helper()
	if err := b.dial(nil); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) deleteQueue(name string) {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := ch.QueueDelete(name, false, false, false); err != nil {
		b.t.Error(err)
	}
	if err := ch.Close(); err != nil {
		b.t.Error(err)
	}
}

// send publishes to the queue, and returns when the broker has it.
func (b *bench) send(msgs ...amqp.Publishing) {
	b.t.Helper()
	b.sendTo(b.queue.Name, msgs...)
}

func (b *bench) sendTo(queue string, msgs ...amqp.Publishing) {
	b.t.Helper()
	for _, msg := range msgs {
		confirm, err := b.ch.PublishWithDeferredConfirm("", queue, true, false, msg)
		if err != nil {
			b.t.Fatal(err)
		}
		select {
		case <-confirm.Done():
		case <-time.After(soon):
		}
		if !confirm.Acked() {
			b.t.Fatal("the broker has not taken the message")
		}
		select {
		case <-b.returns:
			b.t.Fatalf("there is no queue %s", queue)
		default:
		}
	}
}

// take waits for a message in a queue, and takes it out.
func (b *bench) take(queue string) amqp.Delivery {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	defer ch.Close() //nolint:errcheck // it was only for this
	if err := ch.Qos(1, 0, false); err != nil {
		b.t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case d, ok := <-deliveries:
		if !ok {
			b.t.Fatal("the test's channel was closed")
		}
		if err := d.Ack(false); err != nil {
			b.t.Fatal(err)
		}
		return d
	case <-time.After(soon):
		b.t.Fatalf("nothing came to %s", queue)
		return amqp.Delivery{}
	}
}

// letter waits for a dead letter, and takes it out.
func (b *bench) letter() amqp.Delivery {
	b.t.Helper()
	return b.take(b.queue.DeadLetters)
}

// wantLength waits until so many messages wait in a queue: its count follows what the broker has answered.
func (b *bench) wantLength(queue string, want int) {
	b.t.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	for {
		q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if q.Messages == want {
			return
		}
		select {
		case <-deadline.C:
			b.t.Fatalf("%d messages in %s, want %d", q.Messages, queue, want)
		default:
			runtime.Gosched()
		}
	}
}

// running is a consumer that runs.
type running struct {
	t         testing.TB
	decisions chan consume.Decision
	end       context.CancelFunc
	done      chan struct{}
}

type order struct {
	ID string `json:"id"`
}

type handle = func(context.Context, *consume.Message, order) error

func nothing(context.Context, *consume.Message, order) error { return nil }

// specOf is a spec whose retries are quick.
func specOf(h handle) consume.Spec[order] {
	return consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: h, Retry: consume.RetryPolicy{Limit: 3, Min: time.Millisecond, Max: 100 * time.Millisecond}}
}

func newReceiver(t testing.TB, store everonce.Store) *everonce.Receiver {
	t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	return recv
}

// run runs a consumer on the bench's queue until the test ends, or until stop is called.
func (b *bench) run(spec consume.Spec[order], opts *rabbitonce.Options) *running {
	b.t.Helper()
	return b.runOn(memstore.New(nil), b.url, spec, opts)
}

func (b *bench) runOn(store everonce.Store, url string, spec consume.Spec[order], opts *rabbitonce.Options) *running {
	b.t.Helper()
	return b.runWith(url, opts, func(observe observer) (*consume.Consumer, error) {
		spec.Observe = observe
		return consume.New(newReceiver(b.t, store), spec)
	})
}

type observer = func(context.Context, *consume.Message, consume.Decision)

func (b *bench) runWith(url string, opts *rabbitonce.Options, handler func(observer) (*consume.Consumer, error)) *running {
	b.t.Helper()
	r := &running{t: b.t, decisions: make(chan consume.Decision, 10_000), done: make(chan struct{})}
	h, err := handler(func(_ context.Context, _ *consume.Message, v consume.Decision) { r.decisions <- v })
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := rabbitonce.Dial(context.Background(), url, b.queue, h, quick(opts))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	go func() {
		defer close(r.done)
		if err := c.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	b.t.Cleanup(r.stop)
	return r
}

// quick makes pauses short.
func quick(opts *rabbitonce.Options) *rabbitonce.Options {
	var o rabbitonce.Options
	if opts != nil {
		o = *opts
	}
	if o.Workers.Log == nil {
		o.Workers.Log = quiet
	}
	o.Workers.Backoff.Min, o.Workers.Backoff.Max = 10*time.Millisecond, 100*time.Millisecond
	if o.Backoff.Max == 0 {
		o.Backoff.Min, o.Backoff.Max = 10*time.Millisecond, 200*time.Millisecond
	}
	return &o
}

// stop ends the consumer and waits until it has drained.
func (r *running) stop() {
	r.end()
	select {
	case <-r.done:
	case <-time.After(soon):
		r.t.Error("the consumer does not end")
	}
}

// decision waits for the next decision.
func (r *running) decision() consume.Decision {
	r.t.Helper()
	select {
	case v := <-r.decisions:
		return v
	case <-time.After(soon):
		r.t.Fatal("nothing was handled")
		return consume.Decision{}
	}
}

// wants waits for these outcomes, one after the other.
func (r *running) wants(outcomes ...everonce.Outcome) {
	r.t.Helper()
	for i, want := range outcomes {
		if v := r.decision(); v.Outcome != want {
			r.t.Fatalf("outcome %d is %v (%v, %v), want %v", i+1, v.Outcome, v.Disposition, v.Err, want)
		}
	}
}

func message(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, ContentType: "application/json", Body: []byte(`{"id":"` + id + `"}`)}
}
