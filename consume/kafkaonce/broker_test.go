package kafkaonce_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// soon is how long a test waits for what must happen. It is no claim about how long that takes.
const soon = 3 * time.Minute

var quiet = slog.New(slog.DiscardHandler)

// bench is one test's topics on a broker.
type bench struct {
	t      testing.TB
	url    string
	topic  kafkaonce.Topic
	group  string
	client *kgo.Client
	admin  *kadm.Client
	ctx    context.Context
	ends   error // what ends Run, if it ends before it is stopped
}

// newBench returns a topic of the test's own.
func newBench(t testing.TB, partitions int32) *bench {
	t.Helper()
	return newBenchOn(t, testserver.URL(t, "kafka"), partitions)
}

func newBenchOn(t testing.TB, url string, partitions int32) *bench {
	t.Helper()
	name := newName()
	b := &bench{t: t, url: url, group: name, topic: kafkaonce.Topic{Name: name, Delays: []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}}}
	var err error
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b.admin = kadm.NewClient(b.client)
	ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
	b.ctx = ctx
	t.Cleanup(func() {
		_, err := b.admin.DeleteTopics(b.ctx, b.topics()...)
		if err != nil {
			t.Error(err)
		}
		b.client.Close()
		cancel()
	})
	b.create(name, partitions, nil)
	return b
}

func newName() string { return "test." + strings.ToLower(rand.Text()) }

func (b *bench) topics() []string {
	return []string{b.topic.Name, b.letters(), b.retry("100ms"), b.retry("400ms")}
}

func (b *bench) letters() string           { return b.topic.Name + ".dead" }
func (b *bench) retry(delay string) string { return b.topic.Name + ".retry." + delay }

func (b *bench) create(name string, partitions int32, configs map[string]*string) {
	b.t.Helper()
	if _, err := b.admin.CreateTopic(b.ctx, partitions, 1, configs, name); err != nil {
		b.t.Fatal(err)
	}
	for { // the broker answers before it has it
		topics, err := b.admin.ListTopics(b.ctx, name)
		if err != nil {
			b.t.Fatal(err)
		}
		if topics[name].Err == nil {
			return
		}
	}
}

// record is a message with an ID, and a record key.
func record(id, key string) *kgo.Record {
	return &kgo.Record{Key: []byte(key), Value: []byte(`{"id":"` + id + `"}`), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
}

// send produces to the partition that a record names, and returns when the broker has it.
func (b *bench) send(rs ...*kgo.Record) {
	b.t.Helper()
	for _, r := range rs {
		if r.Topic == "" {
			r.Topic = b.topic.Name
		}
	}
	if err := b.client.ProduceSync(b.ctx, rs...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// committed returns what the group has committed for a partition of the topic; -1 for nothing.
func (b *bench) committed(partition int32) int64 {
	b.t.Helper()
	offsets, err := b.admin.FetchOffsets(b.ctx, b.group)
	if err != nil {
		b.t.Fatal(err)
	}
	if o, ok := offsets.Lookup(b.topic.Name, partition); ok {
		return o.At
	}
	return -1
}

// running is a consumer that runs.
type running struct {
	t         testing.TB
	decisions chan consume.Decision
	events    chan kafkaonce.Event
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

func (b *bench) run(spec consume.Spec[order], opts *kafkaonce.Options) *running {
	b.t.Helper()
	return b.runOn(memstore.New(nil), spec, opts)
}

// runOn runs a consumer on the bench's topic until the test ends, or until stop is called.
func (b *bench) runOn(store everonce.Store, spec consume.Spec[order], opts *kafkaonce.Options) *running {
	b.t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r := &running{t: b.t, decisions: make(chan consume.Decision, 10_000)}
	spec.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { r.decisions <- v }
	h, err := consume.New(recv, spec)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.runWith(r, h, opts)
}

func (b *bench) runWith(r *running, h *consume.Consumer, opts *kafkaonce.Options) *running {
	b.t.Helper()
	var o kafkaonce.Options
	if opts != nil {
		o = *opts
	}
	o.Group = b.group
	if o.Workers.Log == nil {
		o.Workers.Log = quiet
	}
	o.Workers.Backoff.Min, o.Workers.Backoff.Max = 10*time.Millisecond, 100*time.Millisecond
	r.events, r.done = make(chan kafkaonce.Event, 10_000), make(chan struct{})
	o.Observe = func(e kafkaonce.Event) { r.events <- e }
	c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, h, &o)
	if err != nil {
		b.t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.end = context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		if err := c.Run(ctx); !errors.Is(err, b.ends) {
			b.t.Errorf("Run ended with %v, want %v", err, b.ends)
		}
	}()
	b.t.Cleanup(r.stop)
	return r
}

// stop ends the consumer and waits until it has drained.
func (r *running) stop() {
	r.end()
	await(r.t, r.done, "the end of the consumer")
}

// await waits for a word on a channel, or for its end.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("there was no sign of %s", what)
	}
	return v
}

// event waits for an event of a kind on the topic itself.
func (r *running) event(b *bench, kind kafkaonce.EventKind) kafkaonce.Event {
	r.t.Helper()
	for {
		if e := await(r.t, r.events, string(kind)); e.Kind == kind && e.Topic == b.topic.Name {
			return e
		}
	}
}

// wants waits for these outcomes, one after the other.
func (r *running) wants(outcomes ...everonce.Outcome) {
	r.t.Helper()
	for i, want := range outcomes {
		if v := await(r.t, r.decisions, "a decision"); v.Outcome != want {
			r.t.Fatalf("outcome %d is %v (%v, %v), want %v", i+1, v.Outcome, v.Disposition, v.Err, want)
		}
	}
}
