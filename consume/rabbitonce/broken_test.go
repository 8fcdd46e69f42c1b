package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// The queue is deleted, so the broker cancels the consumer: that is logged, and the queue is declared again and
// consumed. The consumer's old connection is closed, because the broker would keep the messages that it sent on it.
func TestCancelledByTheBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	opts, again := connections(nil)
	complaints := make(chan string, 1000)
	opts.Workers.Log = slog.New(slog.NewMultiHandler(complaintsTo(complaints).Handler(), opts.Workers.Log.Handler()))
	r := b.runOn(memstore.New(nil), l.url, specOf(nothing), opts)
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	b.deleteQueue(b.queue.Name)
	wait(t, "the next connection", again)
	if c := <-complaints; !strings.Contains(c, "cancelled the consumer") {
		t.Errorf("it complained of %s", c)
	}
	b.send(message("m-1"))
	r.wants(everonce.Replayed)
	l.leaves(t, 1)
	r.stop()
	l.leaves(t, 0)
}

// A copy that the broker confirms and returns, because its queue is gone, is a failure: the message is not
// acknowledged, is not handled again, and goes its way when the queue is back.
func TestAReturnedCopyIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.queue.Topology = rabbitonce.Check // it may not declare what is missing
	ran := atomic.Int64{}
	complaints := make(chan string, 1000)
	opts := &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complaints)}}
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		if ran.Add(1) == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), opts)
	b.deleteQueue(b.queue.Name + ".retry.100ms")
	b.send(message("m-1"))
	r.wants(everonce.Failed)
	for range 3 {
		if c := <-complaints; !strings.Contains(c, "no such queue") {
			t.Fatalf("it complained of %s", c)
		}
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("handled %d times", n)
	}
	b.queue.Topology = rabbitonce.Declare
	b.declare()
	r.wants(everonce.Executed)
}

// declareWithADelayForOne declares the queues, with room for a single message in the queue of the first delay, which
// rejects the next one. It returns the name of that queue.
func (b *bench) declareWithADelayForOne() (delay string) {
	b.t.Helper()
	delay = b.queue.Name + ".retry.100ms"
	for _, name := range b.queues() {
		var full amqp.Table
		if name == delay {
			full = amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}
		}
		if _, err := b.ch.QueueDeclare(name, true, false, false, false, full); err != nil {
			b.t.Fatal(err)
		}
	}
	b.queue.Topology = rabbitonce.Check
	return delay
}

// A copy that the broker refuses, because its queue is full, is a failure too: the message waits until there is room.
func TestARefusedCopyIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	delay := b.declareWithADelayForOne()
	complaints := make(chan string, 1000)
	opts := &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complaints)}}
	b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) }), opts)
	b.send(message("m-1"), message("m-2"))
	for c := range complaints {
		if strings.Contains(c, "the queue is full") {
			break
		}
	}
	first, second := b.take(delay), b.take(delay) // there was room for it then
	if first.MessageId == second.MessageId {
		t.Errorf("%s came twice", first.MessageId)
	}
	b.wantLength(b.queue.Name, 0)
	b.wantLength(b.queue.DeadLetters, 0)
}

// At the end, started messages are finished and acknowledged, and prefetched messages are given back, even before
// that.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, end := make(chan struct{}), make(chan struct{})
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { close(begun); <-end; return nil }), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}, Prefetch: 10})
	for i := range 5 {
		b.send(message(fmt.Sprint("m-", i)))
	}
	wait(t, "the first message", begun)
	b.wantLength(b.queue.Name, 0) // all were sent ahead
	r.end()
	b.wantLength(b.queue.Name, 4)
	close(end)
	r.wants(everonce.Executed)
	r.stop()
	b.wantLength(b.queue.Name, 4)
}

// brokenStore is down.
type brokenStore struct{ everonce.Store }

func (brokenStore) Claim(context.Context, driver.ClaimRequest) (driver.ClaimResult, error) {
	return driver.ClaimResult{}, errors.New("the store is down")
}

// While the store is down nothing is acknowledged, and nothing becomes a dead letter; at the end the broker
// has all of it back.
func TestWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	r := b.runOn(brokenStore{store}, b.url, specOf(nothing), nil)
	b.send(message("m-1"), message("m-2"), message("m-3"))
	for range 20 {
		if v := r.decision(); v.Disposition != consume.Hold {
			t.Fatalf("%v, %v", v.Outcome, v.Disposition)
		}
	}
	r.stop()
	b.wantLength(b.queue.Name, 3)
	b.wantLength(b.queue.DeadLetters, 0)
	r = b.runOn(store, b.url, specOf(nothing), nil)
	r.wants(everonce.Executed, everonce.Executed, everonce.Executed)
}

// A message that ends its consumer each time becomes a dead letter by the broker: it is not lost, can be
// told from others, and can be replayed.
func TestAMessageThatKillsIsADeadLetterOfTheBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 2
	b.declare()
	b.send(message("m-1"))
	for range 3 {
		ch, err := b.conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		deliveries, err := ch.Consume(b.queue.Name, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := <-deliveries; d.MessageId != "m-1" {
			t.Fatalf("%+v", d)
		}
		if err := ch.Close(); err != nil { // as a process that dies
			t.Fatal(err)
		}
	}
	b.wantLength(b.queue.DeadLetters, 1)
	l := b.letters()
	all, err := l.List(t.Context(), consume.Filter{})
	if err != nil || len(all) != 1 || all[0].Reason != "broker_delivery_limit" || all[0].Queue != b.queue.Name || all[0].Last.IsZero() || all[0].Detail == "" || all[0].Message.ID != "m-1" {
		t.Fatalf("%+v, %v", all, err)
	}
	if n, err := l.Replay(t.Context(), consume.Filter{Reasons: []consume.Reason{"broker_delivery_limit"}}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	b.run(specOf(nothing), nil).wants(everonce.Executed)
}

// A message whose headers are nested so deeply that the client library ends its connection over them becomes a dead letter of the broker, and
// none of those that were sent ahead with it: from then on they come one by one, until as many have come as are sent ahead.
func TestHeadersThatEndTheConnection(t *testing.T) {
	t.Parallel()
	const ahead, others = 8, 48
	b := newBench(t)
	b.queue.DeliveryLimit = 3
	b.declare()
	deep := amqp.Table{"x": "y"}
	for range 40 {
		deep = amqp.Table{"x": deep}
	}
	unreadable := message("m-0")
	unreadable.Headers = deep
	sent := []amqp.Publishing{unreadable}
	for i := range others {
		sent = append(sent, message(fmt.Sprint("m-", i+1)))
	}
	b.send(sent...)
	var begun atomic.Int32
	together, log := make(chan struct{}), &lines{}
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Deliveries > 2 {
			return everonce.Permanent("again", fmt.Errorf("delivery %d", m.Deliveries), nil)
		}
		switch n := begun.Add(1); {
		case n == others:
			close(together)
		case n > others-ahead: // by now they are sent ahead again
			<-together
		}
		return nil
	}), &rabbitonce.Options{Prefetch: ahead, Workers: consume.Workers{Concurrency: ahead, Log: textTo(log)}})
	for range others {
		r.wants(everonce.Executed)
	}
	b.wantLength(b.queue.DeadLetters, 1)
	if text := log.String(); !strings.Contains(text, `level=WARN msg="rabbitonce: the headers of a message cannot be read; taking messages one by one for a while"`) {
		t.Errorf("the log is %s", text)
	}
}

// Two consumers of one event have separate queues and share a store: each handles it.
func TestTwoConsumersOfOneEvent(t *testing.T) {
	t.Parallel()
	billing, mail := newBench(t), newBench(t)
	store := memstore.New(nil)
	spec := specOf(nothing)
	spec.Consumer = "mail"
	r1 := billing.runOn(store, billing.url, specOf(nothing), nil)
	r2 := mail.runOn(store, mail.url, spec, nil)
	billing.send(message("m-1"), message("m-1"))
	mail.send(message("m-1"), message("m-1"))
	r1.wants(everonce.Executed, everonce.Replayed)
	r2.wants(everonce.Executed, everonce.Replayed)
}

// A message that another consumer is handling comes later, through a queue with a delay, and does not use up its retries.
func TestInProgressElsewhereUsesUpNoRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, end := make(chan struct{}), make(chan struct{})
	spec := specOf(func(context.Context, *consume.Message, order) error { close(begun); <-end; return nil })
	spec.Retry.Limit = -1 // the first retry that counts would be a dead letter
	retries := make(chan int, 1000)
	spec.Key = func(m *consume.Message) (string, error) { retries <- m.Retries; return m.ID, nil }
	r := b.run(spec, nil)
	b.send(message("m-1"))
	wait(t, "the first", begun)
	b.send(message("m-1"))
	r.wants(everonce.InProgress, everonce.InProgress, everonce.InProgress)
	close(end)
	r.wants(everonce.Executed, everonce.Replayed)
	r.stop()
	close(retries)
	for n := range retries {
		if n != 0 {
			t.Errorf("it counts as %d retries", n)
		}
	}
}

// The consumer is cancelled while messages are being handled: their effects remain, and a message to be retried comes
// through the queue that was declared anew. Their acknowledgements are for a closed channel.
func TestCancelledDuringHandling(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	opts, again := connections(nil)
	begun, proceed := make(chan struct{}, 2), make(chan struct{})
	ran := map[string]*atomic.Int64{"done": {}, "fails": {}}
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		n := ran[m.ID].Add(1)
		if n == 1 {
			begun <- struct{}{}
			<-proceed
		}
		if m.ID == "fails" && n == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), opts)
	b.send(message("done"), message("fails"))
	wait(t, "the first", begun)
	wait(t, "the second", begun)
	b.deleteQueue(b.queue.Name)
	wait(t, "the next connection", again)
	close(proceed)
	for executed := 0; executed < 2; {
		if r.decision().Outcome == everonce.Executed {
			executed++
		}
	}
	b.send(message("done"))
	r.wants(everonce.Replayed)
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if done, failed := ran["done"].Load(), ran["fails"].Load(); done != 1 || failed != 2 {
		t.Errorf("they ran %d times, and %d times", done, failed)
	}
}
