package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// letterFor is a dead letter as a consumer makes it.
func letterFor(queue, id string) amqp.Publishing {
	msg := message(id)
	msg.Headers = amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-message-id": id}
	return msg
}

// sendLetters sends the dead letters m-0 to m-(n-1).
func (b *bench) sendLetters(n int) {
	b.t.Helper()
	for i := range n {
		b.sendTo(b.queue.DeadLetters, letterFor(b.queue.Name, fmt.Sprint("m-", i)))
	}
}

// drained takes what is in a queue, and counts it by its ID.
func (b *bench) drained(queue string, ids map[string]int) {
	b.t.Helper()
	for {
		d, ok, err := b.ch.Get(queue, true)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return
		}
		ids[d.MessageId]++
	}
}

// A replay that is interrupted loses nothing: what is not in its queue is a letter, and what was on its way may be both.
func TestAnInterruptedReplayLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	const n = 200
	b.sendLetters(n)
	l := b.letters()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	replayed := 0
	ended := make(chan error, 1)
	go func() {
		var err error
		replayed, err = l.Replay(ctx, consume.Filter{})
		ended <- err
	}()
	for copies := 0; copies < n/4; {
		q, err := b.ch.QueueDeclarePassive(b.queue.Name, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		copies = q.Messages
	}
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) || replayed == 0 || replayed >= n {
		t.Fatalf("%d were replayed: %v", replayed, err)
	}
	copies, letters, found := map[string]int{}, map[string]int{}, map[string]bool{}
	for len(found) < n { // the broker takes messages back when it has noticed the end of the connection
		b.drained(b.queue.Name, copies)
		b.drained(b.queue.DeadLetters, letters)
		for _, ids := range []map[string]int{copies, letters} {
			for id, times := range ids {
				if found[id] = true; times != 1 {
					t.Fatalf("found %s %d times", id, times)
				}
			}
		}
	}
	if len(copies) < replayed {
		t.Errorf("%d were replayed, and there are %d copies", replayed, len(copies))
	}
	t.Logf("%d were replayed; %d copies, %d dead letters", replayed, len(copies), len(letters))
}

// The key in a dead letter is untrusted: an error quotes it.
func TestAKeyInADeadLetterIsQuoted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	forged := letterFor("gone."+b.queue.Name, "m-1")
	forged.Headers["x-everonce-key-hash"] = "\x1b[2J"
	b.sendTo(b.queue.DeadLetters, forged)
	if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 0 || err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("replayed %d, %q", n, err)
	}
}

// When a call returns, the dead letters that it read can be read again, however many there are: the broker takes them
// back one by one.
func TestManyDeadLettersCanBeReadAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	const n = 400
	b.sendLetters(n)
	l := b.letters()
	for range 2 {
		if all, err := l.List(t.Context(), consume.Filter{}); len(all) != n || err != nil {
			t.Fatalf("%d dead letters, %v; want %d", len(all), err, n)
		}
		if all, err := b.letters().List(t.Context(), consume.Filter{}); len(all) != n || err != nil {
			t.Fatalf("of another connection: %d dead letters, %v; want %d", len(all), err, n)
		}
	}
	if replayed, err := l.Replay(t.Context(), consume.Filter{}); replayed != n || err != nil {
		t.Errorf("%d were replayed, %v", replayed, err)
	}
	b.wantLength(b.queue.Name, n)
}

// A replayed message has its retries before it again, one too that the broker has moved.
func TestAReplayBeginsTheRetriesAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	msg := message("m-1")
	msg.Headers, msg.Expiration = amqp.Table{"x-everonce-retries": int64(3)}, "1"
	b.send(msg)
	b.wantLength(b.queue.DeadLetters, 1)
	if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	if d := b.take(b.queue.Name); d.Headers["x-everonce-retries"] != nil {
		t.Errorf("the copy: %v", d.Headers)
	}
}

// A dead letter counts its replays, so that one that fails each time can be given up. A count that a producer sends is
// ignored.
func TestADeadLetterCountsItsReplays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	work := func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("closed", errClosed, nil)
	}
	msg := message("m-1")
	msg.Headers = amqp.Table{"x-everonce-replays": int64(7)}
	r := b.runOn(store, b.url, specOf(work), nil)
	if err := b.ch.QueueBind(b.queue.Name, b.queue.Name, "amq.direct", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.ch.PublishWithContext(t.Context(), "amq.direct", b.queue.Name, true, false, msg); err != nil {
		t.Fatal(err)
	}
	for replays := range 3 {
		b.whenBuried(r, 1)
		all, err := b.letters().List(t.Context(), consume.Filter{})
		if err != nil || len(all) != 1 || all[0].Replays != replays || len(all[0].Message.Headers) != 0 {
			t.Fatalf("%+v, %v; want one that was replayed %d times", all, err, replays)
		}
		if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
			t.Fatalf("replayed %d, %v", n, err)
		}
		r = b.runOn(store, b.url, specOf(work), nil)
	}
	b.whenBuried(r, 1)
}
