package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
)

func newInbox[Tx any](t testing.TB, h *handle[Tx], opts *inbox.Options) *inbox.Inbox[Tx] {
	t.Helper()
	in, err := inbox.New(h.receiver, "billing", opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return in
}

func receive[Tx any](t testing.TB, in *inbox.Inbox[Tx], m *consume.Message) bool {
	t.Helper()
	isNew, err := in.Receive(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return isNew
}

// verdicts are a worker's reports of messages.
type verdicts struct {
	mu  sync.Mutex
	all []string
	why []string // those with an error
	ch  chan struct{}
}

func (v *verdicts) observe(_ context.Context, m *consume.Message, how inbox.Report) {
	v.mu.Lock()
	v.all = append(v.all, m.ID+" "+how.How.String())
	if how.Err != nil {
		v.why = append(v.why, fmt.Sprint(m.ID, " ", how.How, ": ", how.Err))
	}
	v.mu.Unlock()
	v.ch <- struct{}{}
}

func (v *verdicts) await(t testing.TB, n int) []string {
	t.Helper()
	for {
		v.mu.Lock()
		all := v.all
		v.mu.Unlock()
		if len(all) >= n {
			return all
		}
		select {
		case <-v.ch:
		case <-time.After(hung):
			t.Fatalf("%d verdicts, want %d: %v", len(all), n, all)
		}
	}
}

// working runs a worker until the test ends, or stop is called.
func working[Tx any](t testing.TB, in *inbox.Inbox[Tx], opts *inbox.WorkerOptions, handlers ...inbox.Handler[Tx]) (told *verdicts, stop func()) {
	t.Helper()
	told = &verdicts{ch: make(chan struct{}, 100_000)}
	set := inbox.WorkerOptions{Retry: consume.RetryPolicy{Min: time.Millisecond, Max: time.Millisecond}}
	if opts != nil {
		set = *opts
	}
	set.Observe = told.observe
	w, err := in.Workers(handlers, &set)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return told, stop
}

func TestInboxHandlesOnce(t *testing.T) {
	onAll(t, testInboxHandlesOnce[pgx.Tx], testInboxHandlesOnce[*sql.Tx])
}

// A message that comes twice is handled once, with the events that its handler publishes; a type without a handler
// waits.
func testInboxHandlesOnce[Tx any](t *testing.T, h *handle[Tx]) {
	in, box := newInbox(t, h, nil), newOutbox(t, h)
	consumer, err := in.Consumer()
	if err != nil {
		t.Fatal(err)
	}
	m := &consume.Message{ID: "m-1", Subject: "order.placed", Headers: map[string]string{"a": "b"}, Body: []byte(`{"id":7}`)}
	for range 2 {
		if v := consumer.Handle(t.Context(), m); v.Disposition != consume.Ack {
			t.Fatalf("%v: %v", v.Disposition, v.Err)
		}
	}
	receive(t, in, &consume.Message{ID: "m-2", Subject: "order.unheard"})
	if _, err := in.Receive(t.Context(), &consume.Message{ID: "m-1", Body: []byte("other")}); !errors.Is(err, everonce.ErrMismatch) {
		t.Errorf("another body under the same ID: %v", err)
	}
	if v := consumer.Handle(t.Context(), &consume.Message{Body: []byte("{}")}); v.Disposition != consume.SetAside {
		t.Errorf("a message without an ID: %v", v.Disposition)
	}
	type order struct{ ID int }
	told, stop := working(t, in, nil, inbox.Handler[Tx]{
		Types: []string{"order.placed"},
		Handle: inbox.JSON(func(ctx context.Context, tx Tx, m *consume.Message, o order) error {
			if m.Headers["a"] != "b" || m.Retries != 0 {
				return fmt.Errorf("it came as %+v", m)
			}
			if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", fmt.Sprint("order ", o.ID)); err != nil {
				return err
			}
			return box.Publish(ctx, tx, outbox.Event{Topic: "invoices", Payload: m.Body})
		}),
	})
	if got := told.await(t, 1); got[0] != "m-1 handled" {
		t.Fatal(got, told.why)
	}
	stop()
	if n := h.number(t, "SELECT count(*) FROM effects WHERE name = 'order 7'"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_outbox"); n != 1 {
		t.Errorf("%d events", n)
	}
	if s, err := in.Backlog().Stats(t.Context()); err != nil || s.Waiting != 1 {
		t.Errorf("%+v, %v: the message without a handler must wait", s, err)
	}

	// The row is removed, and the message comes again: the store's record knows it.
	if n, err := in.Backlog().Purge(t.Context(), 0, 100); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if !receive(t, in, m) {
		t.Error("the row existed")
	}
	told, _ = working(t, in, nil, inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
		return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID)
	}})
	got := told.await(t, 2)
	if got[0] != "m-1 skipped" && got[1] != "m-1 skipped" {
		t.Error(got)
	}
}

func TestInboxCountsFailures(t *testing.T) {
	onAll(t, testInboxCountsFailures[pgx.Tx], testInboxCountsFailures[*sql.Tx])
}

// The writes of a failing handler are undone, its try is counted, and after the budget the message is set aside, until
// an operator retries it. Of two handlers only the failing one runs again.
func testInboxCountsFailures[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, nil)
	var broken, other atomic.Int64
	var mended atomic.Bool
	receive(t, in, &consume.Message{ID: "m-1", Body: []byte("{}")})
	receive(t, in, &consume.Message{ID: "m-2", Subject: "refused", Body: []byte("{}")})
	told, _ := working(t, in, nil,
		inbox.Handler[Tx]{Name: "broken", Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
			if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", "broken "+m.ID); err != nil {
				return err
			}
			switch broken.Add(1); {
			case mended.Load():
				return nil
			case m.Subject == "refused":
				return everonce.Permanent("no", errors.New("never"), nil)
			case m.Retries == 1:
				panic("at the second try")
			}
			return h.exec(ctx, tx, "INSERT INTO nowhere VALUES (1)")
		}},
		inbox.Handler[Tx]{Name: "other", Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
			other.Add(1)
			return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", "other "+m.ID)
		}},
	)
	told.await(t, 5) // four tries of the one, one of the other
	entries, err := in.Backlog().List(t.Context(), backlog.Filter{States: []backlog.State{backlog.Blocked}})
	if err != nil || len(entries) != 2 || entries[0].Attempts != 4 || entries[1].Attempts != 1 || entries[0].Error == "" || entries[1].Error == "" {
		t.Fatalf("set aside: %+v, %v; %q", entries, err, told.why)
	}
	if broken.Load() != 5 || other.Load() != 2 {
		t.Errorf("the broken handler ran %d times, the other %d", broken.Load(), other.Load())
	}
	if n := h.number(t, "SELECT count(*) FROM effects WHERE name LIKE 'broken%'"); n != 0 {
		t.Errorf("%d effects of tries that failed", n)
	}
	mended.Store(true)
	if n, err := in.Backlog().Retry(t.Context(), backlog.Filter{States: []backlog.State{backlog.Blocked}}); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	told.await(t, 7)
	if n, o := h.number(t, "SELECT count(*) FROM effects WHERE name LIKE 'broken%'"), h.number(t, "SELECT count(*) FROM effects WHERE name LIKE 'other%'"); n != 2 || o != 2 {
		t.Errorf("%d and %d effects, want 2 of each: %q %q", n, o, told.all, told.why)
	}
}

func TestInboxKeepsOrder(t *testing.T) {
	onAll(t, testInboxKeepsOrder[pgx.Tx], testInboxKeepsOrder[*sql.Tx])
}

// Messages with one order key are handled one after the other, while others go on at the same time.
func testInboxKeepsOrder[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, &inbox.Options{OrderKey: func(m *consume.Message) string { return m.Headers["key"] }})
	const n = 15
	for i := range n {
		receive(t, in, &consume.Message{ID: fmt.Sprint("m-", i), Headers: map[string]string{"key": fmt.Sprint("k", i%3)}, Body: fmt.Append(nil, i)})
	}
	var mu sync.Mutex
	last, running := map[string]int{}, map[string]bool{}
	told, _ := working(t, in, &inbox.WorkerOptions{Concurrency: 8, Retry: consume.RetryPolicy{Min: time.Millisecond, Max: time.Millisecond}}, inbox.Handler[Tx]{Handle: func(_ context.Context, _ Tx, m *consume.Message) error {
		key := m.Headers["key"]
		var i int
		if _, err := fmt.Sscan(string(m.Body), &i); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if running[key] || i < last[key] {
			t.Errorf("%d of %s is handled beside or after a later one", i, key)
		}
		last[key], running[key] = i, true
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		running[key] = false
		if i%5 == 0 && m.Retries == 0 {
			return errors.New("once")
		}
		return nil
	}})
	told.await(t, n+n/5)
}
