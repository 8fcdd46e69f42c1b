package natsonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
)

func (b *bench) publisher(opts *natsonce.PublisherOptions) *natsonce.Publisher {
	b.t.Helper()
	p, err := natsonce.NewPublisher(b.url, opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Close() }) //nolint:errcheck // what was confirmed is published
	return p
}

func (b *bench) event(id string) outbox.Event {
	return outbox.Event{ID: id, Topic: b.queue.Stream + ".placed", Type: "order.placed", ContentType: "application/json", Headers: map[string]string{"traceparent": "00-1"}, Payload: []byte(`{"id":"` + id + `"}`)}
}

// An event that is published again within the window is stored once, and one that comes after it is recognised by its ID.
func TestAnEventIsPublishedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.publisher(nil)
	var seen consume.Message
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error { seen = *m; return nil })
	spec.Key = consume.ProducerID()
	r := b.run(spec, one)
	for range 2 {
		if errs := p.Publish(context.Background(), []outbox.Event{b.event("e-1")}); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
	}
	r.wants(everonce.Executed)
	b.settled()
	r.stop()
	if len(r.decisions) > 0 {
		t.Error("it was stored twice")
	}
	if seen.Headers[jetstream.MsgIDHeader] != "e-1" || seen.Type != "order.placed" || seen.ContentType != "application/json" || seen.Headers["traceparent"] != "00-1" {
		t.Errorf("%+v", seen)
	}
}

// Events with the same key are stored in their order, and none behind one that failed.
func TestEventsKeepTheOrderOfTheirKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 300
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = b.event(fmt.Sprint("e-", i))
		events[i].Key = fmt.Sprint("k-", i%3)
	}
	events[30].Headers = map[string]string{"Nats-Rollup": "all"} // not allowed in an event
	errs := b.publisher(nil).Publish(context.Background(), events)
	for i, err := range errs {
		if (err != nil) != (i%3 == 0 && i >= 30) {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if p, ok := errors.AsType[*everonce.PermanentError](errs[30]); !ok || p.Code != "refused" {
		t.Error(errs[30])
	}
	s, err := b.js.Stream(context.Background(), b.queue.Stream)
	if err != nil {
		t.Fatal(err)
	}
	last := map[int]int{0: -3, 1: -2, 2: -1}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		raw, err := s.GetMsg(context.Background(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var i int
		if _, err := fmt.Sscanf(raw.Header.Get(jetstream.MsgIDHeader), "e-%d", &i); err != nil || i != last[i%3]+3 {
			t.Fatalf("%d follows %d", i, last[i%3])
		}
		last[i%3] = i
	}
}

// The meaning of each refusal of the server: the event is published again later, or set aside.
func TestRefusalsOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	full := b.queue.Stream + "-full"
	b.stream(jetstream.StreamConfig{Name: full, Subjects: []string{full}, MaxMsgs: 1, Discard: jetstream.DiscardNew, MaxMsgSize: 1000})
	defer b.js.DeleteStream(context.Background(), full) //nolint:errcheck // best effort
	expect := func(e *outbox.Event) []jetstream.PublishOpt {
		switch e.Headers["expect"] {
		case "sequence":
			return []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(0)}
		case "stream":
			return []jetstream.PublishOpt{jetstream.WithExpectStream("another")}
		}
		return nil
	}
	p := b.publisher(&natsonce.PublisherOptions{Expect: expect})
	one := func(change func(*outbox.Event)) error {
		e := b.event("e")
		change(&e)
		return p.Publish(context.Background(), []outbox.Event{e})[0]
	}
	if err := one(func(e *outbox.Event) { e.Topic = full }); err != nil {
		t.Fatal(err)
	}
	permanent := func(err error) string {
		if e, ok := errors.AsType[*everonce.PermanentError](err); ok {
			return e.Code
		}
		return ""
	}
	expected := func(e *outbox.Event) { e.ID, e.Headers = "first", map[string]string{"expect": "sequence"} }
	if err := one(expected); err != nil {
		t.Fatal(err)
	}
	if err := one(expected); err != nil { // its answer was lost: it is the last one itself
		t.Errorf("published again: %v", err)
	}
	if err := one(func(e *outbox.Event) { expected(e); e.ID = "second" }); permanent(err) != "sequence" {
		t.Error(err)
	}
	if err := one(func(e *outbox.Event) { e.Headers = map[string]string{"expect": "stream"} }); err == nil || permanent(err) != "" || errors.Is(err, outbox.ErrUnavailable) {
		t.Error(err)
	}
	if err := one(func(e *outbox.Event) { e.Topic = "unrouted." + b.queue.Stream }); !errors.Is(err, natsonce.ErrUnroutable) || errors.Is(err, outbox.ErrUnavailable) {
		t.Error(err)
	}
	if err := one(func(e *outbox.Event) { e.Topic, e.ID = full, "new" }); !errors.Is(err, outbox.ErrUnavailable) {
		t.Error(err)
	}
	for name, change := range map[string]func(*outbox.Event){
		"too large for the server": func(e *outbox.Event) { e.Payload = make([]byte, b.conn.MaxPayload()+1) },
		"too large for the stream": func(e *outbox.Event) { e.Topic, e.ID, e.Payload = full, "large", make([]byte, 1001) },
		"headers":                  func(e *outbox.Event) { e.Headers = map[string]string{"h": strings.Repeat("x", 70_000)} },
	} {
		if err := one(change); permanent(err) != "too_large" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*outbox.Event){
		"a wildcard": func(e *outbox.Event) { e.Topic = "orders.*" },
		"blanks":     func(e *outbox.Event) { e.Topic = "orders placed" },
		"two lines":  func(e *outbox.Event) { e.Headers = map[string]string{"h": "1\r\nNats-Rollup: all"} },
		"a name":     func(e *outbox.Event) { e.Headers = map[string]string{"a:b": "1"} },
		"our name":   func(e *outbox.Event) { e.Headers = map[string]string{"x-everonce-replays": "1"} },
	} {
		if err := one(change); permanent(err) != "refused" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A publisher whose server is away says so, and goes on when it is back; one that is closed says so.
func TestAPublisherWithoutItsServer(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "nats")
	b := newBenchOn(t, server.URL)
	p := b.publisher(&natsonce.PublisherOptions{Log: quiet})
	publish := func(id string) error { return p.Publish(context.Background(), []outbox.Event{b.event(id)})[0] }
	if err := publish("e-1"); err != nil {
		t.Fatal(err)
	}
	server.Run(killed)
	if err := publish("e-2"); !errors.Is(err, outbox.ErrUnavailable) {
		t.Error(err)
	}
	server.Up()
	b.eventually("it is published", func() bool { return publish("e-2") == nil })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := publish("e-3"); !errors.Is(err, outbox.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := natsonce.NewPublisher("http://127.0.0.1", nil); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
}
