package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/outbox"
)

// limited is a context for waiting.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A topic whose destination does not answer leaves room for the others, even if only one batch is claimed.
func TestTrapASlowTopicLeavesOthersFlowing(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box, to := newOutbox(t, h), newArrivals()
	var slow, fast []outbox.Event
	for i := range 20 {
		slow = append(slow, outbox.Event{ID: fmt.Sprint("slow ", i), Topic: "slow"})
		fast = append(fast, outbox.Event{ID: fmt.Sprint("fast ", i), Topic: "fast"})
	}
	h.publish(t, box, append(slow, fast...)...)
	skipFailed := make(chan struct{})
	defer close(skipFailed)
	relaying(t, box, outbox.Route(map[string]outbox.Publisher{
		"slow": outbox.PublisherFunc(func(context.Context, []outbox.Event) []error { <-skipFailed; return nil }),
		"":     to.publisher(),
	}), &outbox.RelayOptions{Batch: 8, InFlight: 8, PublishTimeout: time.Minute})
	must(t, to.await(ctx, len(fast)))
}

// A destination that is unavailable pauses its topic: few calls find out, they are not counted, and others flow. A
// destination that refuses events permanently does not: it answers.
func TestTrapAnUnavailableTopicIsPaused(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box, to := newOutbox(t, h), newArrivals()
	var calls atomic.Int64
	var up atomic.Bool
	down := outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
		calls.Add(1)
		errs := make([]error, len(events))
		for i := range events {
			if errs[i] = outbox.ErrUnavailable; up.Load() {
				errs[i] = nil
				to.came(&events[i])
				if events[i].Attempts != 1 {
					t.Errorf("%s came at attempt %d", events[i].ID, events[i].Attempts)
				}
			}
		}
		return errs
	})
	began := time.Now()
	relaying(t, box, outbox.Route(map[string]outbox.Publisher{"down": down, "": to.publisher()}), &outbox.RelayOptions{Retry: quick})
	h.publish(t, box, line("down", "a", 3)...)
	must(t, within(ctx, "a call", func() (bool, error) { return calls.Load() > 0, nil }))
	for i := range 5 {
		h.publish(t, box, outbox.Event{ID: fmt.Sprint("other ", i), Topic: "up"})
		must(t, to.await(ctx, i+1))
	}
	if n := calls.Load(); n > 3+2*int64(time.Since(began).Seconds()) { // some seconds, on a machine that is busy
		t.Errorf("%d calls of a destination that is unavailable", n)
	}
	up.Store(true)
	must(t, to.await(ctx, 8))
}

// Events that are refused for good say that the destination answers: nothing is paused.
func TestTrapRefusedEventsPauseNothing(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box, to := newOutbox(t, h), newArrivals()
	to.answer = func(e *outbox.Event) error {
		if e.Key != "" {
			return everonce.Permanent("no", errors.New("never"), nil)
		}
		return nil
	}
	relay, err := box.Relay(to.publisher(), &outbox.RelayOptions{Batch: 1})
	must(t, err)
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	for i := range 6 {
		h.publish(t, box, outbox.Event{Topic: "orders", Key: fmt.Sprint("k", i)})
	}
	h.publish(t, box, outbox.Event{Topic: "orders"})
	go func() { done <- relay.Run(running) }()
	must(t, to.await(ctx, 1))
	stop()
	must(t, <-done)
	if s, err := box.Backlog().Stats(t.Context()); err != nil || s.Blocked != 6 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestTrapPoisonedEvent(t *testing.T) {
	onAll(t, testTrapPoisonedEvent[pgx.Tx], testTrapPoisonedEvent[*sql.Tx])
}

// A poisoned event blocks its key until an operator retries it, or lets it go on, as the topic's policy says. Others
// flow.
func testTrapPoisonedEvent[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := limited(t)
	box, to := newOutbox(t, h), newArrivals()
	var mended atomic.Bool
	to.answer = func(e *outbox.Event) error {
		if e.Key == "poisoned" && string(e.Payload) == "2" && !mended.Load() {
			return everonce.Permanent("no", errors.New("never"), nil)
		}
		return nil
	}
	h.publish(t, box, append(append(line("blocks", "poisoned", 3), line("goes-on", "poisoned", 3)...), line("blocks", "other", 3)...)...)
	relaying(t, box, to.publisher(), &outbox.RelayOptions{SkipFailed: func(topic string) bool { return topic == "goes-on" }})
	must(t, to.await(ctx, 1+2+3))
	b := box.Backlog()
	must(t, within(ctx, "two set aside", func() (bool, error) { s, err := b.Stats(ctx); return s.Blocked == 1 && s.Dead == 1, err }))
	if s, err := b.Stats(ctx); err != nil || s.Waiting != 1 || to.has("blocks-poisoned-3") || !to.has("goes-on-poisoned-3") {
		t.Errorf("%+v, %v, %v", s, err, to.ids)
	}
	mended.Store(true)
	if n, err := b.Retry(ctx, backlog.Filter{States: []backlog.State{backlog.Blocked}}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	must(t, to.await(ctx, 8))
	h.settled(t, box)
}

// An unreadable row is set aside like a poisoned event, and later rows with its key wait.
func TestTrapARowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box, to := newOutbox(t, h), newArrivals()
	h.publish(t, box, append(line("orders", "a", 3), line("orders", "b", 3)...)...)
	h.must(t, "UPDATE everonce_outbox SET headers = 'no JSON' WHERE id = 'orders-a-2'")
	relaying(t, box, to.publisher(), nil)
	must(t, within(ctx, "one set aside", func() (bool, error) { s, err := box.Backlog().Stats(ctx); return s.Blocked == 1, err }))
	must(t, to.await(ctx, 4))
	if to.has("orders-a-3") {
		t.Error("an event was published before what it waits for")
	}
}

// A publisher that panics, ends its goroutine, answers with a wrong number of errors, or does not return, has published
// nothing: its events come again.
func TestTrapPublishersThatMisbehave(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func(context.Context, []outbox.Event) []error{
		"panics":       func(context.Context, []outbox.Event) []error { panic("in the publisher") },
		"wrong number": func(context.Context, []outbox.Event) []error { return make([]error, 1) },
		"one panics": outbox.One(2, func(context.Context, *outbox.Event) error {
			panic("in the publisher")
		}).Publish,
		"one ends its goroutine": outbox.One(2, func(context.Context, *outbox.Event) error {
			runtime.Goexit()
			return nil
		}).Publish,
		"does not return": func(ctx context.Context, _ []outbox.Event) []error {
			<-ctx.Done()
			<-time.After(2 * time.Second) // so that no goroutine is left behind the tests
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, ctx := onSQLite(t), limited(t)
			box, to := newOutbox(t, h), newArrivals()
			var calls atomic.Int64
			h.publish(t, box, append(line("orders", "a", 2), outbox.Event{ID: "free", Topic: "orders"})...)
			relaying(t, box, outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
				if calls.Add(1) == 1 {
					return misbehave(ctx, events)
				}
				return to.publisher().Publish(ctx, events)
			}), &outbox.RelayOptions{Retry: quick, PublishTimeout: 50 * time.Millisecond})
			must(t, to.await(ctx, 3))
			h.settled(t, box)
		})
	}
}

func TestTrapAPurgeLeavesWhatIsNotDone(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testTrapPurge(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testTrapPurge(t, onPostgres(t)) })
	onMySQLs(t, testTrapPurge[*sql.Tx])
}

// A purge neither waits for a row that somebody is about to retry, nor removes it, nor an event that came again with
// the ID of one that was removed.
func testTrapPurge[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := limited(t)
	box := newOutbox(t, h)
	h.publish(t, box, outbox.Event{ID: "a", Topic: "orders"}, outbox.Event{ID: "b", Topic: "orders"})
	h.must(t, "UPDATE everonce_outbox SET state = 4, done_at = 1")
	tx, commit, rollback, err := h.begin(ctx)
	must(t, err)
	defer rollback() //nolint:errcheck // after the commit it does nothing
	must(t, h.exec(ctx, tx, "UPDATE everonce_outbox SET state = 0, done_at = NULL WHERE id = 'a'"))
	if n, err := box.Backlog().Purge(ctx, time.Hour, 100); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	must(t, commit())
	h.publish(t, box, outbox.Event{ID: "b", Topic: "orders"})
	if n, err := box.Backlog().Purge(ctx, time.Hour, 100); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	to := newArrivals()
	relaying(t, box, to.publisher(), nil)
	must(t, to.await(ctx, 2))
}

func TestTrapNotBefore(t *testing.T) {
	onAll(t, testTrapNotBefore[pgx.Tx], testTrapNotBefore[*sql.Tx])
}

// An event is not published before its time, nor is what stands behind it; others flow.
func testTrapNotBefore[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := limited(t)
	box, to := newOutbox(t, h), newArrivals()
	events := append(line("orders", "never", 2), line("orders", "soon", 2)...)
	events[0].NotBefore = time.Now().Add(time.Hour)
	events[2].NotBefore = time.Now().Add(300 * time.Millisecond)
	h.publish(t, box, append(events, line("orders", "now", 2)...)...)
	relaying(t, box, to.publisher(), nil)
	must(t, to.await(ctx, 4))
	if early := events[2].NotBefore; time.Now().Before(early) {
		t.Errorf("it came at %v, before %v", time.Now(), early)
	}
	must(t, within(ctx, "four that are done", func() (bool, error) {
		n := h.number(t, "SELECT count(*) FROM everonce_outbox WHERE state = 0")
		if n < 2 {
			return false, errors.New("one was published before its time")
		}
		return n == 2, nil
	}))
	if n, err := box.Backlog().Retry(ctx, backlog.Filter{ID: "orders-never-1"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	must(t, to.await(ctx, 6))
}

func TestBadEvents(t *testing.T) {
	onAll(t, testBadEvents[pgx.Tx], testBadEvents[*sql.Tx])
}

// An event that cannot be published has a typed error, and leaves the transaction unchanged.
func testBadEvents[Tx any](t *testing.T, h *handle[Tx]) {
	box := newOutbox(t, h)
	long := strings.Repeat("x", 256)
	bad := map[string]struct {
		event outbox.Event
		want  error
	}{
		"no topic":          {outbox.Event{}, everonce.ErrInvalidArgument},
		"long topic":        {outbox.Event{Topic: long}, everonce.ErrInvalidArgument},
		"long ID":           {outbox.Event{Topic: "t", ID: long}, everonce.ErrInvalidArgument},
		"long key":          {outbox.Event{Topic: "t", Key: long}, everonce.ErrInvalidArgument},
		"NUL in the key":    {outbox.Event{Topic: "t", Key: "a\x00b"}, everonce.ErrInvalidArgument},
		"type not UTF-8":    {outbox.Event{Topic: "t", Type: "\xff"}, everonce.ErrInvalidArgument},
		"header not UTF-8":  {outbox.Event{Topic: "t", Headers: map[string]string{"a": "\xff"}}, everonce.ErrInvalidArgument},
		"header, no name":   {outbox.Event{Topic: "t", Headers: map[string]string{"": "a"}}, everonce.ErrInvalidArgument},
		"large headers":     {outbox.Event{Topic: "t", Headers: map[string]string{"a": strings.Repeat("x", 1<<16)}}, everonce.ErrTooLarge},
		"large payload":     {outbox.Event{Topic: "t", Payload: make([]byte, 1<<20+1)}, everonce.ErrTooLarge},
		"time out of range": {outbox.Event{Topic: "t", NotBefore: time.Unix(1<<50, 0)}, everonce.ErrInvalidArgument},
	}
	h.inTx(t, func(ctx context.Context, tx Tx) error {
		for name, b := range bad {
			if err := box.Publish(ctx, tx, outbox.Event{Topic: "good"}, b.event); !errors.Is(err, b.want) || errors.Is(err, everonce.ErrStore) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := box.Publish(ctx, tx, make([]outbox.Event, 10_001)...); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("too many: %v", err)
		}
		return box.Publish(ctx, tx, outbox.Event{ID: "1", Topic: "good", Key: "it's {1i} $1 ?1", Payload: []byte{0}})
	})
	for name, other := range map[string]outbox.Event{
		"topic": {Topic: "other", Payload: []byte{0}}, "payload": {Topic: "good", Payload: []byte{1}}, "headers": {Topic: "good", Payload: []byte{0}, Headers: map[string]string{"a": "b"}},
	} {
		other.ID = "1"
		err := h.receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			return box.Publish(ctx, tx, outbox.Event{Topic: "good"}, other)
		})
		if !errors.Is(err, everonce.ErrMismatch) {
			t.Errorf("another %s under the same ID: %v", name, err)
		}
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_outbox"); n != 1 {
		t.Errorf("%d events, want the one that is good", n)
	}
}

func TestTablesOfAnotherVersion(t *testing.T) {
	onAll(t, testTablesOfAnotherVersion[pgx.Tx], testTablesOfAnotherVersion[*sql.Tx])
}

// Tables that are missing, or newer, are ErrSchema with a sentence that says what to do.
func testTablesOfAnotherVersion[Tx any](t *testing.T, h *handle[Tx]) {
	box, err := outbox.New(h.receiver, nil)
	must(t, err)
	in, err := newInboxWithoutTable(h)
	must(t, err)
	check := func(what string, err error, say string) {
		t.Helper()
		if !errors.Is(err, everonce.ErrSchema) || !errors.Is(err, everonce.ErrStore) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", what, err)
		}
	}
	run := func(what, say string) {
		t.Helper()
		relay, err := box.Relay(newArrivals().publisher(), nil)
		must(t, err)
		check(what+": the relay", relay.Run(t.Context()), say)
		worker, err := in.Worker(nothing[Tx](), nil)
		must(t, err)
		check(what+": the worker", worker.Run(t.Context()), say)
	}
	run("missing", "Migrate")
	err = h.receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error { return box.Publish(ctx, tx, outbox.Event{Topic: "t"}) })
	check("missing: Publish", err, "Outbox.Migrate")
	_, err = in.Receive(t.Context(), message("1"))
	check("missing: Receive", err, "Inbox.Migrate")
	_, err = box.Backlog().Stats(t.Context())
	check("missing: Stats", err, "Outbox.Migrate")

	must(t, box.Migrate(t.Context()))
	must(t, in.Migrate(t.Context()))
	h.must(t, "UPDATE everonce_meta SET value = '99' WHERE name IN ('outbox', 'inbox')")
	run("newer", "upgrade this process")
	check("newer: Migrate", box.Migrate(t.Context()), "upgrade this process")
}
