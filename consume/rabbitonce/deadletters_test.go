package rabbitonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// letters opens the bench's dead letters.
func (b *bench) letters() *rabbitonce.DeadLetters {
	b.t.Helper()
	l, err := rabbitonce.DialDeadLetters(b.t.Context(), b.url, b.queue, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return l
}

// whenBuried waits for so many dead letters, and stops the consumer.
func (b *bench) whenBuried(r *running, n int) {
	b.t.Helper()
	for buried := 0; buried < n; {
		if r.decision().Disposition == consume.SetAside {
			buried++
		}
	}
	r.stop()
	b.wantLength(b.queue.DeadLetters, n)
}

var errClosed = errors.New("the bank is closed")

// A dead letter that is replayed days later is a duplicate if its work was done.
func TestReplayedDeadLetterIsADuplicateIfTheWorkWasDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	ran := 0
	work := func(context.Context, *consume.Message, order) error { ran++; return errors.New("the line went dead") }
	r := b.runOn(store, b.url, specOf(work), nil)
	b.send(message("m-1"))
	b.whenBuried(r, 1)

	now = now.Add(5 * 24 * time.Hour)
	key := everonce.Key{Scope: everonce.ScopeOf("billing"), ID: "m-1"}
	if err := newReceiver(t, store).Settle(t.Context(), key, everonce.Settlement{Verdict: everonce.SettleDone}); err != nil {
		t.Fatal(err)
	}
	if n, err := b.letters().Replay(t.Context(), consume.Filter{Reasons: []consume.Reason{consume.Unknown}}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r = b.runOn(store, b.url, specOf(work), nil)
	r.wants(everonce.Elided)
	r.stop()
	if ran != 1 {
		t.Errorf("ran %d times", ran)
	}
	b.wantLength(b.queue.DeadLetters, 0)
	b.wantLength(b.queue.Name, 0)
}

// A dead letter that is replayed days later runs if its work was not done, with its retries before it again.
func TestReplayedDeadLetterRunsIfTheWorkWasNotDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	var seen []consume.Message
	open := false
	work := func(_ context.Context, m *consume.Message, _ order) error {
		seen = append(seen, *m)
		if open {
			return nil
		}
		return everonce.NotDone(errClosed)
	}
	r := b.runOn(store, b.url, specOf(work), nil)
	msg := message("m-1")
	msg.Headers = amqp.Table{"tenant": "a"}
	b.send(msg)
	b.whenBuried(r, 1)

	now, open = now.Add(20*24*time.Hour), true
	if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r = b.runOn(store, b.url, specOf(work), nil)
	r.wants(everonce.Executed)
	r.stop()
	if m := seen[len(seen)-1]; m.ID != "m-1" || m.Retries != 0 || m.Headers["tenant"] != "a" || len(m.Headers) != 1 || len(m.OmittedHeaders) != 0 {
		t.Errorf("the copy: %+v", m)
	}
}

// A dead letter that somebody moves by other means, as a shovel does, is the same operation too: its message ID is the
// key's hash then, and not the producer's.
func TestADeadLetterMovedByAnOperatorIsTheSameOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	r := b.runOn(store, b.url, specOf(func(context.Context, *consume.Message, order) error { return errors.New("the line went dead") }), nil)
	b.send(message("m-1"))
	v := r.decision()
	d := b.letter()
	b.send(amqp.Publishing{Headers: d.Headers, MessageId: d.MessageId, ContentType: d.ContentType, Body: d.Body})
	again := r.decision()
	if again.Outcome != everonce.Unknown || again.KeyHash != v.KeyHash {
		t.Errorf("%v for %s, want unknown for %s", again.Outcome, again.KeyHash, v.KeyHash)
	}
	if d := b.letter(); d.Headers["x-everonce-message-id"] != "m-1" || d.MessageId != v.KeyHash {
		t.Errorf("the second dead letter: %+v", d)
	}
}

// To list leaves all dead letters; what is listed is what a filter means.
func TestListingDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-1" {
			return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
		}
		return nil
	})
	r := b.run(spec, nil)
	b.send(message("m-1"), amqp.Publishing{MessageId: "m-2", Body: []byte("no json")}, message(""), message("m-4"))
	b.whenBuried(r, 3)
	l := b.letters()
	for range 3 { // once is as good as often
		all, err := l.List(t.Context(), consume.Filter{})
		if err != nil || len(all) != 3 {
			t.Fatalf("%d dead letters, %v", len(all), err)
		}
	}
	rejected, err := l.List(t.Context(), consume.Filter{Reasons: []consume.Reason{consume.Rejected}})
	if err != nil || len(rejected) != 1 {
		t.Fatalf("%d dead letters, %v", len(rejected), err)
	}
	first := rejected[0]
	if first.Message.ID != "m-1" || first.Queue != b.queue.Name || first.Consumer != "billing" || first.Attempts != 1 || first.First.IsZero() || first.Last.IsZero() ||
		string(first.Message.Body) != `{"id":"m-1"}` {
		t.Errorf("%+v, %+v", first, first.Message)
	}
	for name, c := range map[string]struct {
		filter consume.Filter
		want   int
	}{
		"key":                  {consume.Filter{KeyHash: first.KeyHash}, 1},
		"beginning of a key":   {consume.Filter{KeyHash: first.KeyHash[:6]}, 1},
		"limit":                {consume.Filter{Limit: 2}, 2},
		"two reasons":          {consume.Filter{Reasons: []consume.Reason{consume.NoKey, consume.Undecodable}}, 2},
		"older than an hour":   {consume.Filter{Before: time.Now().Add(-time.Hour)}, 0},
		"younger than an hour": {consume.Filter{After: time.Now().Add(-time.Hour)}, 3},
	} {
		if got, err := l.List(t.Context(), c.filter); err != nil || len(got) != c.want {
			t.Errorf("%s: %d dead letters, %v; want %d", name, len(got), err, c.want)
		}
	}
	if n, err := l.Discard(t.Context(), consume.Filter{Reasons: []consume.Reason{consume.NoKey}}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	if all, err := l.List(t.Context(), consume.Filter{}); err != nil || len(all) != 2 {
		t.Errorf("%d dead letters are left, %v", len(all), err)
	}
}

// A dead letter whose queue does not exist is not replayed, and others are.
func TestADeadLetterWhoseQueueIsGoneIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.whenBuried(b.run(specOf(nothing), nil), 0)
	lost := message("m-1")
	lost.Headers = amqp.Table{"x-everonce-reason": "unknown", "x-everonce-queue": "gone." + b.queue.Name}
	ours := message("m-2")
	ours.Headers = amqp.Table{"x-everonce-reason": "unknown", "x-everonce-queue": b.queue.Name}
	b.sendTo(b.queue.DeadLetters, lost, ours)
	n, err := b.letters().Replay(t.Context(), consume.Filter{})
	left, leftErr := b.letters().List(t.Context(), consume.Filter{})
	if leftErr != nil || len(left) != 1 || left[0].Queue == b.queue.Name {
		t.Fatalf("%+v is left, %v", left, leftErr)
	}
	if n != 1 || err == nil || !strings.Contains(err.Error(), left[0].ID) {
		t.Errorf("replayed %d, %v; want one, and an error that names %s", n, err, left[0].ID)
	}
	b.wantLength(b.queue.Name, 1)
}

// A dead letter whose queue is full is not replayed, and ends the replay with the reason.
func TestADeadLetterWhoseQueueIsFullIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	full := amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, full); err != nil {
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	b.declare()
	b.sendLetters(3)
	if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || !errors.Is(err, consume.ErrRefused) {
		t.Errorf("replayed %d, %v; want one, and that the queue is full", n, err)
	}
	b.wantLength(b.queue.DeadLetters, 2)
	b.wantLength(b.queue.Name, 1)
}

// A replayed message that fails at once is not replayed again by the same call.
func TestReplayEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(specOf(nothing), nil) // handles messages, and sets aside those without JSON
	for range 20 {
		b.send(amqp.Publishing{MessageId: "m", Body: []byte("no json")})
	}
	l := b.letters()
	for total := 0; total < 20; {
		n, err := l.Replay(t.Context(), consume.Filter{})
		if err != nil || n > 20 {
			t.Fatalf("replayed %d, %v", n, err)
		}
		total += n
	}
}

// A negative limit is an error: as no limit, it would discard everything.
func TestANegativeLimitIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.sendLetters(2)
	l := b.letters()
	wrong := consume.Filter{Limit: -1}
	for name, call := range map[string]func() (int, error){
		"list":    func() (int, error) { all, err := l.List(t.Context(), wrong); return len(all), err },
		"replay":  func() (int, error) { return l.Replay(t.Context(), wrong) },
		"discard": func() (int, error) { return l.Discard(t.Context(), wrong) },
	} {
		if n, err := call(); n != 0 || !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	b.wantLength(b.queue.DeadLetters, 2)
}

// A stream can hold dead letters, but none can be taken out of it: the error says so, and is no lost connection.
func TestDeadLettersInAStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, amqp.Table{"x-queue-type": "stream"}); err != nil {
		t.Fatal(err)
	}
	if all, err := b.letters().List(t.Context(), consume.Filter{}); len(all) != 0 || !errors.Is(err, rabbitonce.ErrTopology) || !strings.Contains(err.Error(), b.queue.DeadLetters) {
		t.Errorf("%v, %v", all, err)
	}
}

// Dead letters are closed once, however many calls close them, and also during a read: the reader gets an error, and
// no call waits.
func TestConcurrentCloseOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.Permanent("declined", nil, nil) }), nil)
	b.send(message("m-1"))
	b.whenBuried(r, 1)
	l := b.letters()
	looking, closed := make(chan struct{}), make(chan error)
	go func() {
		<-looking
		for range 3 {
			go func() { closed <- l.Close() }()
		}
	}()
	for letter, err := range l.All(t.Context(), consume.Filter{}) {
		if err != nil { // of giving it back
			break
		}
		if letter.Message.ID != "m-1" {
			t.Errorf("the dead letter has the ID %q", letter.Message.ID)
		}
		close(looking)
		for range 3 {
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	}
	if found, err := l.List(t.Context(), consume.Filter{}); err == nil {
		t.Errorf("closed, and lists %d dead letters", len(found))
	}
	if n, err := l.Discard(t.Context(), consume.Filter{}); n != 0 || err == nil {
		t.Errorf("closed, and discards %d dead letters, %v", n, err)
	}
	if found, err := b.letters().List(t.Context(), consume.Filter{}); err != nil || len(found) != 1 {
		t.Errorf("%d dead letters are left, %v", len(found), err)
	}
}
