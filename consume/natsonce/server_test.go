package natsonce_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// soon is how long a test waits for what must happen. It is no claim about how long that takes.
const soon = 3 * time.Minute

var quiet = slog.New(slog.DiscardHandler)

// bench is one test's stream, with the subjects "NAME.…".
type bench struct {
	t     testing.TB
	url   string
	queue natsonce.Queue
	conn  *nats.Conn
	js    jetstream.JetStream
}

func newBench(t testing.TB) *bench { return newBenchOn(t, testserver.URL(t, "nats")) }

// newBenchOn makes a stream of the test's own, which is gone after it, with all that belongs to it.
func newBenchOn(t testing.TB, url string) *bench {
	t.Helper()
	b := &bench{t: t, url: url, queue: natsonce.Queue{Stream: "test-" + rand.Text(), AckWait: 30 * time.Second}}
	var err error
	if b.conn, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		t.Fatal(err)
	}
	b.stream(jetstream.StreamConfig{Name: b.queue.Stream, Subjects: []string{b.queue.Stream + ".>"}})
	t.Cleanup(func() {
		for _, name := range []string{b.queue.Stream, b.dead(), "KV_" + b.counts()} {
			b.js.DeleteStream(context.Background(), name) //nolint:errcheck // a test may have none
		}
		b.conn.Close()
	})
	return b
}

// dead is the name of the stream of dead letters.
func (b *bench) dead() string { return b.queue.Stream + "-dead" }

// counts is the name of the bucket of counts.
func (b *bench) counts() string { return b.queue.Stream + "-billing-retries" }

// counted is how many messages have a count.
func (b *bench) counted() uint64 {
	b.t.Helper()
	bucket, err := b.js.KeyValue(context.Background(), b.counts())
	if err != nil {
		b.t.Fatal(err)
	}
	status, err := bucket.Status(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return status.Values()
}

// stream makes a stream as it should be.
func (b *bench) stream(c jetstream.StreamConfig) jetstream.Stream {
	b.t.Helper()
	s, err := b.js.CreateOrUpdateStream(context.Background(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// consumer is the durable one, as the server has it.
func (b *bench) consumer() *jetstream.ConsumerInfo {
	b.t.Helper()
	c, err := b.js.Consumer(context.Background(), b.queue.Stream, "billing")
	if err != nil {
		b.t.Fatal(err)
	}
	return c.CachedInfo()
}

// declare makes a durable consumer, and all that the queue has, without running it.
func (b *bench) declare() {
	b.t.Helper()
	if err := b.dial(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) dial() error {
	b.t.Helper()
	h, err := consume.New(newReceiver(b.t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, quick(nil))
	if err != nil {
		return err
	}
	return c.Close()
}

// message is one with an ID that a producer has given it.
func (b *bench) message(id string) *nats.Msg {
	return &nats.Msg{Subject: b.queue.Stream + ".placed", Data: []byte(`{"id":"` + id + `"}`), Header: nats.Header{"Content-Type": {"application/json"}, "Order-Id": {id}}}
}

func (b *bench) send(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.publish(b.message(id))
	}
}

func (b *bench) publish(msg *nats.Msg) *jetstream.PubAck {
	b.t.Helper()
	ack, err := b.js.PublishMsg(context.Background(), msg)
	if err != nil {
		b.t.Fatal(err)
	}
	return ack
}

// fetch fetches a message, like another process with the same durable consumer.
func (b *bench) fetch() jetstream.Msg {
	b.t.Helper()
	c, err := b.js.Consumer(context.Background(), b.queue.Stream, "billing")
	if err != nil {
		b.t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(soon))
	if err != nil {
		b.t.Fatal(err)
	}
	return msg
}

// eventually waits until something is so at the server.
func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(soon); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			b.t.Fatalf("it is never so: %s", what)
		}
	}
}

// settled waits until no message is unacknowledged or pending.
func (b *bench) settled() {
	b.t.Helper()
	b.eventually("all is acknowledged", func() bool {
		info := b.consumer()
		return info.NumAckPending == 0 && info.NumPending == 0
	})
}

// letters returns the dead letters.
func (b *bench) letters() []*jetstream.RawStreamMsg {
	b.t.Helper()
	s, err := b.js.Stream(context.Background(), b.dead())
	if err != nil {
		b.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		raw, err := s.GetMsg(context.Background(), seq)
		if err != nil {
			continue // it was removed
		}
		all = append(all, raw)
	}
	return all
}

// letter waits for the one dead letter.
func (b *bench) letter() *jetstream.RawStreamMsg {
	b.t.Helper()
	var all []*jetstream.RawStreamMsg
	b.eventually("there is one dead letter", func() bool { all = b.letters(); return len(all) == 1 })
	return all[0]
}

type order struct {
	ID string `json:"id"`
}

type handle = func(context.Context, *consume.Message, order) error

func nothing(context.Context, *consume.Message, order) error { return nil }

// specOf is a spec whose retries are quick.
func specOf(h handle) consume.Spec[order] {
	return consume.Spec[order]{Consumer: "billing", Key: consume.Header("Order-Id"), Handle: h, Retry: consume.RetryPolicy{Limit: 3, Min: time.Millisecond, Max: 50 * time.Millisecond}}
}

func newReceiver(t testing.TB, store everonce.Store) *everonce.Receiver {
	t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	return recv
}

// running is a consumer that runs.
type running struct {
	t         testing.TB
	decisions chan consume.Decision
	end       context.CancelFunc
	done      chan struct{}
}

// run runs a consumer on the bench's stream until the test ends, or until stop is called.
func (b *bench) run(spec consume.Spec[order], opts *natsonce.Options) *running {
	b.t.Helper()
	return b.runOn(memstore.New(nil), spec, opts)
}

func (b *bench) runOn(store everonce.Store, spec consume.Spec[order], opts *natsonce.Options) *running {
	b.t.Helper()
	return b.runUntil(context.Background(), store, spec, opts)
}

func (b *bench) runUntil(ctx context.Context, store everonce.Store, spec consume.Spec[order], opts *natsonce.Options) *running {
	b.t.Helper()
	r := &running{t: b.t, decisions: make(chan consume.Decision, 10_000), done: make(chan struct{})}
	spec.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { r.decisions <- v }
	h, err := consume.New(newReceiver(b.t, store), spec)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, quick(opts))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
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
func quick(opts *natsonce.Options) *natsonce.Options {
	var o natsonce.Options
	if opts != nil {
		o = *opts
	}
	if o.Workers.Log == nil {
		o.Workers.Log = quiet
	}
	o.Connect = append(o.Connect, nats.ReconnectWait(50*time.Millisecond))
	o.Workers.Backoff.Min, o.Workers.Backoff.Max = 10*time.Millisecond, 100*time.Millisecond
	o.Backoff.Min, o.Backoff.Max = 10*time.Millisecond, 200*time.Millisecond
	return &o
}

// killed kills a test's own server, and waits until its port is free.
const killed = `pid=$(head -n 1 "$dir/pid"); kill -9 "$pid"; while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done`

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

// wait waits for a word of a handler.
func wait(t testing.TB, what string, word <-chan struct{}) {
	t.Helper()
	select {
	case <-word:
	case <-time.After(soon):
		t.Fatalf("%s: nothing happened", what)
	}
}

// logging has what was logged, line by line.
type logging struct{ lines chan string }

func (l logging) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l logging) Write(line []byte) (int, error) {
	l.lines <- string(line)
	return len(line), nil
}

// wants waits for a line.
func (l logging) wants(t testing.TB, part string) {
	t.Helper()
	for end := time.After(soon); ; {
		select {
		case line := <-l.lines:
			if strings.Contains(line, part) {
				return
			}
		case <-end:
			t.Fatalf("%q is not logged", part)
		}
	}
}
