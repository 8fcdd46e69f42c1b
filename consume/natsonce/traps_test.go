package natsonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/store/memstore"
)

// Traps of JetStream. docs/reference/proofs.md lists them.

// Trap: JetStream knows a message ID only during the stream's window. A later publish is a new message; the consumer
// recognises it by the ID, because that is its key.
func TestTrapTheWindowForgetsAMessageID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stream(jetstream.StreamConfig{Name: b.queue.Stream, Subjects: []string{b.queue.Stream + ".>"}, Duplicates: 100 * time.Millisecond})
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID != "" {
			t.Errorf("it is taken for the ID %q that a producer gave the operation", m.ID)
		}
		return nil
	})
	spec.Key = consume.Header(jetstream.MsgIDHeader)
	r := b.run(spec, one)
	msg := b.message("any")
	msg.Header.Set(jetstream.MsgIDHeader, "m-1")
	first := b.publish(msg)
	again := b.publish(msg)
	b.eventually("the server takes it again", func() bool { again = b.publish(msg); return !again.Duplicate })
	if again.Sequence == first.Sequence {
		t.Errorf("%+v, %+v", first, again)
	}
	r.wants(everonce.Executed, everonce.Replayed)
	b.settled()
}

// Trap: two messages with one ID and different bodies are one to JetStream: the second is dropped, and its producer
// gets a confirm. Without an ID both come, and the fingerprint tells them apart.
func TestTrapTheWindowComparesIDsOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	msg, other := b.message("m-1"), b.message("m-1")
	other.Data = []byte(`{"id":"another order"}`)
	msg.Header.Set(jetstream.MsgIDHeader, "same")
	other.Header.Set(jetstream.MsgIDHeader, "same")
	b.publish(msg)
	if ack := b.publish(other); !ack.Duplicate {
		t.Error("the window compares more than the ID now")
	}
	other.Header.Del(jetstream.MsgIDHeader)
	b.publish(other)
	r := b.run(specOf(nothing), one)
	r.wants(everonce.Executed, everonce.Mismatch)
	if reason := b.letter().Header.Get("x-everonce-reason"); reason != "mismatch" {
		t.Error(reason)
	}
}

// Trap: a message that is unanswered for longer than AckWait goes to another consumer. Heartbeats prevent that, from
// its receipt on, also for messages that wait.
func TestTrapLongerThanAckWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.AckWait = time.Second
	const all = 6 // fetched for two workers
	store, begun, proceed := memstore.New(nil), make(chan struct{}, all), make(chan struct{})
	first := b.runOn(store, specOf(func(context.Context, *consume.Message, order) error {
		begun <- struct{}{}
		<-proceed
		return nil
	}), &natsonce.Options{Workers: consume.Workers{Concurrency: 2}})
	for i := range all {
		b.send(fmt.Sprint("m-", i))
	}
	wait(t, "the first", begun)
	b.eventually("the others were fetched", func() bool { return b.consumer().NumAckPending == all })
	other, err := b.js.Consumer(context.Background(), b.queue.Stream, "billing")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := other.Next(jetstream.FetchMaxWait(3 * b.queue.AckWait)); err == nil {
		t.Errorf("another process has %s", msg.Data())
	}
	close(proceed)
	for range all {
		first.wants(everonce.Executed)
	}
	b.settled()
}

// Trap: a late acknowledgement acknowledges the delivery of the same message to another consumer. It comes after the
// record, so that nothing is lost; and the other's own acknowledgement is harmless.
func TestTrapALateAckOfAnothersRedelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.AckWait = time.Second
	b.declare()
	b.send("m-1")
	late := b.fetch() // and no word of it for longer than AckWait, like a process that is paused
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		close(begun)
		<-proceed
		return nil
	}), one)
	wait(t, "the redelivery", begun)
	if err := late.DoubleAck(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := b.consumer().NumAckPending; n != 0 {
		t.Fatalf("%d are pending: a late acknowledgement covers only its own delivery", n)
	}
	close(proceed)
	r.wants(everonce.Executed)
	r.stop() // its acknowledgement is confirmed: otherwise this would take a minute
	b.settled()
}

// Trap: a consumer's backoff overrides AckWait, and is added to the delay of a NAK. Such a consumer is refused, and so
// is one with a limit of deliveries, after which a message would stay in the stream undelivered. A consumer that
// expires would begin anew at the first message.
func TestTrapConsumersThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for want, c := range map[string]jetstream.ConsumerConfig{
		"backoff":     {AckPolicy: jetstream.AckExplicitPolicy, BackOff: []time.Duration{time.Second, time.Minute}, MaxDeliver: -1},
		"max_deliver": {AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5},
		"ack_policy":  {AckPolicy: jetstream.AckNonePolicy},
		"headers":     {AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true},
		"inactive":    {AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Hour},
		"memory":      {AckPolicy: jetstream.AckExplicitPolicy, MemoryStorage: true},
		"expires":     {AckPolicy: jetstream.AckExplicitPolicy, MaxRequestExpires: time.Millisecond},
		"subjects":    {AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: b.queue.Stream + ".other"},
	} {
		b.queue.Subjects = nil
		if want == "subjects" {
			b.queue.Subjects = []string{b.queue.Stream + ".placed"}
		}
		c.Durable = "billing"
		if _, err := b.js.CreateConsumer(context.Background(), b.queue.Stream, c); err != nil {
			t.Fatal(err)
		}
		if err := b.dial(); !errors.Is(err, natsonce.ErrTopology) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err := b.js.DeleteConsumer(context.Background(), b.queue.Stream, "billing"); err != nil {
			t.Fatal(err)
		}
	}
}

// Trap: after max_deliver a message stays in the stream for ever, undelivered. The consumer has no such limit: a
// message that kills its process each time becomes a dead letter of this package, and retries do not count towards
// that limit.
func TestTrapAMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 2
	b.declare()
	b.send("killer")
	killer := b.fetch()
	begun, proceed := make(chan struct{}), make(chan struct{})
	first := b.run(specOf(func(context.Context, *consume.Message, order) error {
		close(begun)
		<-proceed
		return nil
	}), one)
	b.send("slow")
	wait(t, "the slow one", begun)
	if err := killer.Nak(); err != nil { // as if its process had died, but at once
		t.Fatal(err)
	}
	b.eventually("it waits behind the slow one", func() bool { return b.counted() == 1 })
	first.end() // which gives it back
	close(proceed)
	first.stop()
	r := b.run(specOf(nothing), one)
	l := b.letter()
	if l.Header.Get("x-everonce-reason") != "broker_delivery_limit" || string(l.Data) != `{"id":"killer"}` {
		t.Errorf("%+v", l)
	}
	b.settled()
	if v := r.decision(); v.Disposition != consume.SetAside || v.Death.Reason != "broker_delivery_limit" || len(r.decisions) > 0 {
		t.Errorf("Observe got %+v, and %d more", v, len(r.decisions))
	}
}

// Trap: JetStream's count of deliveries has the retries in it, and those that ended without a word. A message that is retried more often than
// the delivery limit allows is no killer.
func TestTrapRetriesAreNoLostDeliveries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 2
	var tries atomic.Int64
	spec := specOf(func(context.Context, *consume.Message, order) error {
		if tries.Add(1) < 6 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	})
	spec.Retry.Limit = 10
	r := b.run(spec, one)
	b.send("m-1")
	for range 5 {
		r.wants(everonce.Failed)
	}
	r.wants(everonce.Executed)
	b.settled()
}

// Trap: the count of a message must outlive its process, and be shared by all processes.
func TestTrapRetriesAreCountedOverRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	spec := specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("no")) })
	spec.Retry = consume.RetryPolicy{Limit: 2, Min: 300 * time.Millisecond, Max: 300 * time.Millisecond}
	b.send("m-1")
	for i := range 3 {
		r := b.runOn(store, spec, one)
		if v := r.decision(); (v.Disposition == consume.SetAside) != (i == 2) {
			t.Fatalf("delivery %d: %v", i+1, v.Disposition)
		}
		r.stop()
	}
	if attempts := b.letter().Header.Get("x-everonce-attempts"); attempts != "3" {
		t.Errorf("%s attempts", attempts)
	}
}

// Trap: a message of a stream that has sources, or is a mirror, has another sequence there than where it was published, and comes by both: the
// key must not be made of sequences. The broker's ID names the stream that it came by.
func TestTrapStreamsThatAreSourcesAndMirrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("m-0") // so that sequences differ
	store := memstore.New(nil)
	spec := specOf(nothing)
	ids := make(chan string, 10)
	spec.Handle = func(_ context.Context, m *consume.Message, _ order) error { ids <- m.BrokerID; return nil }
	b.runOn(store, spec, nil)
	if id := <-ids; id != b.queue.Stream+":1" {
		t.Error(id)
	}
	for kind, c := range map[string]jetstream.StreamConfig{
		"sourced": {Sources: []*jetstream.StreamSource{{Name: b.queue.Stream, OptStartSeq: 2}}},
		"mirror":  {Mirror: &jetstream.StreamSource{Name: b.queue.Stream, OptStartSeq: 2}},
	} {
		c.Name = b.queue.Stream + "-" + kind
		b.stream(c)
		other := *b
		other.queue = natsonce.Queue{Stream: c.Name, DeadLetters: b.dead(), Durable: kind, Counts: b.queue.Stream + "-billing-retries"}
		t.Cleanup(func() { b.js.DeleteStream(context.Background(), c.Name) }) //nolint:errcheck // it may be gone
		b.send("m-" + kind)
		<-ids
		r := other.runOn(store, spec, nil)
		r.wants(everonce.Replayed)
	}
}

// Trap: a message that waits for its retry counts as unacknowledged, up to max_ack_pending. There is room for many.
func TestTrapWaitingRetriesDoNotBlockTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(func(_ context.Context, m *consume.Message, o order) error {
		if strings.HasPrefix(o.ID, "bad") {
			return everonce.NotDone(errors.New("no"))
		}
		return nil
	})
	spec.Retry = consume.RetryPolicy{Min: time.Hour, Max: time.Hour}
	const more = 1100 // than the server's own default
	r := b.run(spec, nil)
	for i := range more {
		if _, err := b.js.PublishMsgAsync(b.message(fmt.Sprint("bad-", i))); err != nil {
			t.Fatal(err)
		}
	}
	b.send("good")
	for range more {
		if v := r.decision(); v.Outcome == everonce.Executed {
			return // others may be behind it
		}
	}
	r.wants(everonce.Executed)
}

// Trap: the bucket of counts may be missing, and come back without its counts. A message waits for it, and is not
// taken for one whose deliveries ended without an answer.
func TestTrapTheCountsAreMissingAndLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 2
	b.declare()
	b.queue.Topology = natsonce.Check
	b.send("m-1")
	for range 4 {
		if err := b.fetch().Nak(); err != nil {
			t.Fatal(err)
		}
	}
	msg := b.fetch()
	log := logging{lines: make(chan string, 1000)}
	r := b.run(specOf(nothing), &natsonce.Options{Workers: consume.Workers{Log: log.logger()}})
	bucket, err := b.js.KeyValue(context.Background(), b.counts())
	if err != nil {
		t.Fatal(err)
	}
	status, err := bucket.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteKeyValue(context.Background(), b.counts()); err != nil {
		t.Fatal(err)
	}
	if err := msg.Nak(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		log.wants(t, "waits for its count")
	}
	if info := b.consumer(); info.NumAckPending != 1 || info.Delivered.Consumer != 6 {
		t.Errorf("it was given back: %+v", info)
	}
	if _, err := b.js.CreateKeyValue(context.Background(), status.Config()); err != nil {
		t.Fatal(err)
	}
	r.wants(everonce.Executed)
	b.settled()
}

// Trap: a durable consumer may allow smaller and shorter requests than the client's. The requests are as it allows.
func TestTrapSmallRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.js.CreateConsumer(context.Background(), b.queue.Stream, jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestBatch: 1, MaxRequestExpires: time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	r := b.run(specOf(nothing), nil)
	b.send("m-1", "m-2")
	r.wants(everonce.Executed, everonce.Executed)
	b.settled()
}

// Trap: the stream of dead letters is full or gone: the message waits in its own stream.
func TestTrapDeadLettersAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stream(jetstream.StreamConfig{Name: b.dead(), Subjects: []string{b.dead() + ".>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	b.publish(&nats.Msg{Subject: b.dead() + ".other"})
	spec := specOf(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no", errors.New("no"), nil)
	})
	r := b.run(spec, one)
	b.send("m-1")
	r.wants(everonce.Rejected, everonce.Rejected)
	s, err := b.js.Stream(context.Background(), b.dead())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	if reason := b.letter().Header.Get("x-everonce-reason"); reason != "rejected" {
		t.Error(reason)
	}
	b.settled()
}
