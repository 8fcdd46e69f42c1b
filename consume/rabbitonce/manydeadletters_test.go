package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// counted is a way to the broker that counts how often something is said to it.
func counted(t *testing.T, brokerURL string) (url string, said *atomic.Int64) {
	t.Helper()
	said = &atomic.Int64{}
	pipe := func(to, from net.Conn, said *atomic.Int64) {
		defer to.Close() //nolint:errcheck // the other way ends by it
		part := make([]byte, 64<<10)
		for {
			n, err := from.Read(part)
			said.Add(1)
			if _, failed := to.Write(part[:n]); failed != nil || err != nil {
				return
			}
		}
	}
	url = relay(t, brokerURL, func(near, far net.Conn) {
		go pipe(far, near, said)
		go pipe(near, far, &atomic.Int64{})
	})
	return url, said
}

// Each request for a dead letter costs a round trip and a write to the broker's disk: a read of many asks for many at
// a time, and sees them in their order.
func TestManyDeadLettersAreFetchedTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	const n = 300
	b.sendLetters(n)
	url, said := counted(t, b.url)
	l, err := rabbitonce.DialDeadLetters(t.Context(), url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of the test
	before, seen, then := said.Load(), 0, int64(0)
	for letter, err := range l.All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint("m-", seen); letter.Message.ID != want {
			t.Fatalf("%q, want %q", letter.Message.ID, want)
		}
		if seen++; seen == n {
			then = said.Load()
		}
	}
	if cost := then - before; seen != n || cost > n/3 {
		t.Errorf("%d dead letters of %d, and something was said to the broker %d times", seen, n, cost)
	}
}

// Two who look at the same time see each letter at most once each, and none is lost by it; neither waits for what the other one has.
func TestTwoReadTheDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	const n = 60
	b.sendLetters(n)
	one, other := b.letters(), b.letters()
	seen := map[string]int{}
	for letter, err := range one.All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[letter.ID]++
		if len(seen) > 1 {
			continue
		}
		theirs, err := other.Discard(t.Context(), consume.Filter{Limit: 20})
		if err != nil || theirs != 20 {
			t.Errorf("discarded %d, %v", theirs, err)
		}
	}
	if len(seen) != n-20 {
		t.Errorf("%d dead letters, want %d", len(seen), n-20)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s was seen %d times", id, times)
		}
	}
	b.wantLength(b.queue.DeadLetters, n-20)
}

// One reader does not see the dead letters that another one holds: Consumers says that there are other readers,
// without the caller.
func TestOtherReadersAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.sendLetters(3)
	one, other := b.letters(), b.letters()
	wants := func(of *rabbitonce.DeadLetters, want int) {
		t.Helper()
		if n, err := of.Consumers(t.Context()); n != want || err != nil {
			t.Errorf("%d have dead letters, %v; want %d", n, err, want)
		}
	}
	for _, err := range one.All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if found, err := other.List(t.Context(), consume.Filter{}); len(found) != 0 || err != nil {
			t.Errorf("%d dead letters, %v", len(found), err)
		}
		n, err := other.Consumers(t.Context())
		if n == 0 || err != nil {
			t.Errorf("%d have dead letters, %v", n, err)
		}
	}
	wants(one, 0)
	wants(other, 0)
	if _, err := b.ch.Consume(b.queue.DeadLetters, "", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	wants(one, 1)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := one.Consumers(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A classic queue counts only consumers: with 0 consumers, there may still be readers.
func TestAClassicQueueDoesNotCountReaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	b.declare() // which does not change them
	b.sendLetters(3)
	other := b.letters()
	for _, err := range b.letters().All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n, err := other.Consumers(t.Context()); n != 0 || err != nil {
			t.Errorf("%d have dead letters, %v", n, err)
		}
	}
	if _, err := b.ch.Consume(b.queue.DeadLetters, "", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := other.Consumers(t.Context()); n != 1 || err != nil {
		t.Errorf("%d have dead letters, %v, want who consumes them", n, err)
	}
}

// A dead letter that the client library cannot read ends the reader's connection. The error says so, and not only that
// the connection is lost: an operator must remove it with the broker's own tools.
func TestAnUnreadableDeadLetterIsReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	deep := amqp.Table{"x": "y"}
	for range 40 {
		deep = amqp.Table{"x": deep}
	}
	b.sendTo(b.queue.DeadLetters, amqp.Publishing{Headers: deep}, letterFor(b.queue.Name, "m-1"))
	for range 2 {
		_, err := b.letters().List(t.Context(), consume.Filter{})
		if err == nil || !strings.Contains(err.Error(), "invalid field") || !strings.Contains(err.Error(), "own tools") {
			t.Fatalf("%v", err)
		}
	}
	b.wantLength(b.queue.DeadLetters, 2)
}

// Large dead letters are not all in memory at once: only as many are received as fit, if they are as large as the
// first.
func TestLargeDeadLettersAreReadInParts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		l := letterFor(b.queue.Name, id)
		l.Body = make([]byte, 9<<20)
		b.sendTo(b.queue.DeadLetters, l)
	}
	seen := 0
	for _, err := range b.letters().All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		b.wantLength(b.queue.DeadLetters, 3-seen)
	}
	if seen != 3 {
		t.Errorf("%d dead letters", seen)
	}
	b.wantLength(b.queue.DeadLetters, 3)
}
