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

// Traps of RabbitMQ that no other test is about. docs/reference/proofs.md lists them.

// die takes what is sent ahead, and ends like a process that dies: by its channel, without an answer.
func (b *bench) die(prefetch int, want ...string) {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		b.t.Fatal(err)
	}
	deliveries, err := ch.Consume(b.queue.Name, "", false, false, false, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, id := range want {
		select {
		case d := <-deliveries:
			if d.MessageId != id {
				b.t.Fatalf("%s came, want %s", d.MessageId, id)
			}
		case <-time.After(soon):
			b.t.Fatalf("%s did not come", id)
		}
	}
	if err := ch.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// Trap: with a prefetch above one, a message that kills its consumer each time takes those that were sent ahead with it
// over the delivery limit. They are dead letters then, not lost, and run when they are replayed.
func TestTrapInnocentsSentAheadWithAKillerAreNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 2
	b.declare()
	b.send(message("killer"), message("m-1"), message("m-2"))
	for range 3 {
		b.die(3, "killer", "m-1", "m-2")
	}
	b.wantLength(b.queue.DeadLetters, 3)
	l := b.letters()
	all, err := l.List(t.Context(), consume.Filter{})
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, d := range all {
		if d.Reason != "broker_delivery_limit" {
			t.Errorf("%s: %s", d.Message.ID, d.Reason)
		}
	}
	if n, err := l.Replay(t.Context(), consume.Filter{}); n != 3 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	b.run(specOf(nothing), nil).wants(everonce.Executed, everonce.Executed, everonce.Executed)
}

// Trap: below 4.3 a nack uses up a delivery of the limit, and a broker never redelivers on an open channel a message
// that was neither acknowledged nor refused. A held message is neither: it is handled again and again without another
// delivery, under a limit that a second one would exceed.
func TestTrapAHeldMessageIsNoDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 1
	deliveries := make(chan int, 1000)
	spec := specOf(nothing)
	spec.Key = func(m *consume.Message) (string, error) { deliveries <- m.Deliveries; return m.ID, nil }
	r := b.runOn(brokenStore{memstore.New(nil)}, b.url, spec, nil)
	b.send(message("m-1"))
	for range 10 {
		if v := r.decision(); v.Disposition != consume.Hold {
			t.Fatalf("%v, %v", v.Outcome, v.Disposition)
		}
	}
	r.stop()
	for len(deliveries) > 0 {
		if n := <-deliveries; n != 1 {
			t.Errorf("it was handled as delivery %d", n)
		}
	}
	b.run(spec, nil).wants(everonce.Executed)
	if n := <-deliveries; n != 2 {
		t.Errorf("after the channel was closed it was delivery %d, want 2", n)
	}
	b.wantLength(b.queue.DeadLetters, 0)
}

// Trap: a nack or a reject uses up a delivery of the limit too. A message that is retried more often than the limit is
// a new copy each time, with a new count.
func TestTrapRetriesDoNotUseUpTheDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 1
	tries := 0
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Deliveries != 1 || m.Retries != tries {
			t.Errorf("try %d: delivery %d, retry %d", tries, m.Deliveries, m.Retries)
		}
		if tries++; tries <= 3 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed, everonce.Executed)
	b.wantLength(b.queue.DeadLetters, 0)
}

// Trap: messages with individual TTLs in one queue wait behind the head, however short theirs is. Here each delay has
// a queue, so that a short one does not wait behind a long one.
func TestTrapAShortDelayDoesNotWaitBehindALongOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.Delays = []time.Duration{100 * time.Millisecond, 10 * time.Minute}
	b.declare()
	long := b.queue.Name + ".retry.10m"
	t.Cleanup(func() { b.deleteQueue(long) })
	b.sendTo(long, message("long"))
	b.sendTo(b.queue.Name+".retry.100ms", message("short"))
	if d := b.take(b.queue.Name); d.MessageId != "short" {
		t.Errorf("%s came first", d.MessageId)
	}
	b.wantLength(long, 1)

	// The trap itself: the same in one queue.
	trap := b.queue.Name + ".trap"
	if _, err := b.ch.QueueDeclare(trap, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.queue.Name,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.deleteQueue(trap) })
	head, behind := message("head"), message("behind")
	head.Expiration, behind.Expiration = "1500", "1"
	b.sendTo(trap, head, behind)
	if d := b.take(b.queue.Name); d.MessageId != "head" {
		t.Errorf("%s came first: one queue for delays of all lengths would do", d.MessageId)
	}
}

// Trap: dead-lettering is at-most-once unless a queue says otherwise, and rejects nothing when it is full. Each queue that
// is declared here says otherwise: the broker takes a declaration without it for another queue's.
func TestTrapDeadLetteringIsAtLeastOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	for queue, args := range map[string]amqp.Table{
		b.queue.Name: {
			"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.queue.DeadLetters,
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		},
		b.queue.Name + ".retry.100ms": {
			"x-queue-type": "quorum", "x-message-ttl": int64(100), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.queue.Name,
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		},
	} {
		if err := b.redeclare(queue, args); err != nil {
			t.Errorf("%s: %v", queue, err)
		}
		for _, argument := range []string{"x-dead-letter-strategy", "x-overflow"} {
			without := amqp.Table{}
			for k, v := range args {
				if k != argument {
					without[k] = v
				}
			}
			if e, ok := errors.AsType[*amqp.Error](b.redeclare(queue, without)); !ok || e.Code != amqp.PreconditionFailed {
				t.Errorf("%s was declared without %s (%v)", queue, argument, e)
			}
		}
	}
}

// A classic queue says that a message was delivered before, and not how often: that is not taken for once.
func TestAClassicQueueDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	b.send(message("m-1"))
	b.die(1, "m-1")
	seen := make(chan consume.Message, 1)
	b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error { seen <- *m; return nil }), nil).wants(everonce.Executed)
	if m := <-seen; m.Deliveries != 0 || !m.Redelivered {
		t.Errorf("delivery %d, marked as redelivered: %v", m.Deliveries, m.Redelivered)
	}
}

// The dead letters are in a quorum queue, which outlives the loss of a node, and from RabbitMQ 4 on without the limit of deliveries
// that it has by default.
func TestTheQueueOfTheDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	args := amqp.Table{"x-queue-type": "quorum"}
	if version, _ := b.conn.Properties["version"].(string); !strings.HasPrefix(version, "3.") {
		args["x-delivery-limit"] = int64(-1)
	}
	if err := b.redeclare(b.queue.DeadLetters, args); err != nil {
		t.Error(err)
	}
}

// redeclare declares a queue again, which the broker allows with the same arguments.
func (b *bench) redeclare(queue string, args amqp.Table) error {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	defer ch.Close() //nolint:errcheck // a refusal has closed it
	_, err = ch.QueueDeclare(queue, true, false, false, false, args)
	return err
}

// Trap: the flag "redelivered" says only that this copy was delivered before. A publisher's duplicate does not have
// it, and a first handling may have it: only the key tells them apart.
func TestTrapRedeliveredIsNoSignOfADuplicate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.send(message("m-1"))
	b.die(1, "m-1") // delivered, and never handled
	seen := make(chan consume.Message, 10)
	spec := specOf(nothing)
	spec.Key = func(m *consume.Message) (string, error) { seen <- *m; return m.ID, nil }
	r := b.run(spec, nil)
	r.wants(everonce.Executed)
	b.send(message("m-1"))
	r.wants(everonce.Replayed)
	if first, duplicate := <-seen, <-seen; !first.Redelivered || duplicate.Redelivered {
		t.Errorf("the first handling is marked: %v; the duplicate: %v", first.Redelivered, duplicate.Redelivered)
	}
}

// Trap: an original that is acknowledged before its copy is confirmed is lost with the connection. Where that is cut while
// messages are given back, originals come again beside their copies, and each has one effect.
func TestTrapTheConnectionIsCutWhileMessagesAreGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	ran, cut := map[string]int{}, map[string]bool{}
	r := b.runOn(memstore.New(nil), w.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if !cut[m.ID] {
			cut[m.ID] = true
			w.cut()
			return everonce.NotDone(errors.New("not yet"))
		}
		ran[m.ID]++
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}, Heartbeat: time.Second})
	const n = 5
	for i := range n {
		b.send(message(fmt.Sprint("m-", i)))
	}
	for done := map[string]bool{}; len(done) < n; {
		if v := r.decision(); v.Outcome == everonce.Executed {
			done[v.KeyHash] = true
		}
	}
	b.wantLength(b.queue.Name, 0)
	r.stop()
	for id, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
	b.wantLength(b.queue.DeadLetters, 0)
}
