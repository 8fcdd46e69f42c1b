package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// A publisher's resend is another message to the broker, which does not flag it as redelivered: its key is what
// tells, and the effect is one.
func TestAPublishersResendTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := 0
	flagged := false
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		handled++
		flagged = flagged || m.Redelivered
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}}) // one after the other
	b.send(message("m-1"), message("m-1"), message("m-1"))
	r.wants(everonce.Executed, everonce.Replayed, everonce.Replayed)
	r.stop()
	if handled != 1 || flagged {
		t.Errorf("handled %d times, flagged as redelivered: %v", handled, flagged)
	}
	b.wantLength(b.queue.Name, 0)
}

// A failed message comes again through a queue with a delay, and its retries are counted; it is one operation.
func TestRetriedThroughADelayQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen []consume.Message
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		seen = append(seen, *m)
		if len(seen) < 3 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), &rabbitonce.Options{Prefetch: 1, Workers: consume.Workers{Concurrency: 1}}) // what was moved, and not acknowledged, would hold up what follows
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Executed)
	r.stop()
	for i, m := range seen {
		if m.Retries != i || m.ID != "m-1" || m.Source != b.queue.Name || m.Subject != b.queue.Name || len(m.Headers)+len(m.OmittedHeaders) != 0 {
			t.Errorf("delivery %d: %+v", i+1, m)
		}
	}
}

// A message that fails too often becomes a dead letter with all details, and with the key's hash as its message ID.
func TestExhaustedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		return everonce.NotDone(errors.New("the bank is closed"))
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed)
	v := r.decision()
	d := b.letter()
	if d.MessageId != v.KeyHash || d.Headers["x-everonce-message-id"] != "m-1" || d.Headers["x-everonce-reason"] != "exhausted" ||
		d.Headers["x-everonce-attempts"] != int64(4) || d.Headers["x-everonce-queue"] != b.queue.Name || d.Headers["x-everonce-consumer"] != "billing" ||
		d.Headers["x-everonce-first"] == nil || d.Headers["x-everonce-last"] == nil || d.Headers["x-everonce-detail"] != "the bank is closed" ||
		string(d.Body) != `{"id":"m-1"}` || d.DeliveryMode != 2 {
		t.Errorf("%+v", d)
	}
}

// Several processes consume one queue: a classic one, which knows exclusive consumers.
func TestTwoProcessesConsumeOneQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	store, begun, proceed := memstore.New(nil), make(chan struct{}, 2), make(chan struct{})
	opts := &rabbitonce.Options{Prefetch: 1, Workers: consume.Workers{Concurrency: 1}}
	spec := specOf(func(context.Context, *consume.Message, order) error { begun <- struct{}{}; <-proceed; return nil })
	one, other := b.runOn(store, b.url, spec, opts), b.runOn(store, b.url, spec, opts)
	b.send(message("m-1"), message("m-2"))
	wait(t, "one of them", begun)
	wait(t, "the other one", begun)
	close(proceed)
	one.wants(everonce.Executed)
	other.wants(everonce.Executed)
}

// A queue with a single active consumer keeps the order of all processes: one of them handles, and when it ends, another.
func TestOrderOfASingleActiveConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	args := amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true}
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	store, opts := memstore.New(nil), &rabbitonce.Options{Workers: consume.Workers{Order: func(*consume.Message) string { return "all" }}}
	type handled struct{ process, id string }
	seen, processes := make(chan handled, 10), map[string]*running{}
	for _, name := range []string{"one", "other"} {
		processes[name] = b.runOn(store, b.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
			seen <- handled{name, m.ID}
			return nil
		}), opts)
	}
	was := ""
	for _, ids := range [][]string{{"m-9", "m-8", "m-7"}, {"m-6", "m-5", "m-4"}} {
		for _, id := range ids {
			b.send(message(id))
		}
		active := ""
		for i, id := range ids {
			got := wait(t, id, seen)
			if i == 0 {
				active = got.process
			}
			if got != (handled{active, id}) || active == was {
				t.Errorf("got %v, want %s from %q, and not from %q", got, id, active, was)
			}
		}
		for range ids {
			processes[active].wants(everonce.Executed)
		}
		processes[active].stop()
		was = active
	}
}

// No more messages are sent ahead than Prefetch says.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proceed := make(chan struct{})
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { <-proceed; return nil }), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}, Prefetch: 3})
	for i := range 3 {
		b.send(message(fmt.Sprint("ahead-", i)))
	}
	b.wantLength(b.queue.Name, 0)
	for i := range 4 {
		b.send(message(fmt.Sprint("behind-", i)))
	}
	for range 50 {
		b.wantLength(b.queue.Name, 4)
	}
	close(proceed)
	for range 7 {
		r.wants(everonce.Executed)
	}
}

// A message that failed waits in the first of the delays that is long enough, or in the last.
func TestTheDelayIsLongEnough(t *testing.T) {
	t.Parallel()
	for wait, suffix := range map[time.Duration]string{50 * time.Millisecond: ".retry.100ms", 800 * time.Millisecond: ".retry.400ms", time.Hour: ".retry.400ms"} {
		b := newBench(t)
		for _, name := range b.queues() { // none of which moves a message on
			if _, err := b.ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		b.queue.Topology = rabbitonce.Check
		spec := specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) })
		spec.Retry = consume.RetryPolicy{Min: wait, Max: wait}
		b.run(spec, nil)
		b.send(message("m-1"))
		b.take(b.queue.Name + suffix)
	}
}

// Names that are longer together than the tag of a consumer may be in AMQP stand still nowhere.
func TestALongNameIsConsumed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(nothing), &rabbitonce.Options{Name: strings.Repeat("\u00e9", 200)})
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	r.stop()
}
