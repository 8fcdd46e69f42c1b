package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/internal/sqlqueue"
)

func message(id string) *consume.Message { return &consume.Message{ID: id, Body: []byte("{}")} }

func newInboxWithoutTable[Tx any](h *handle[Tx]) (*inbox.Inbox[Tx], error) {
	return inbox.New(h.receiver, "billing", nil)
}

func nothing[Tx any]() inbox.Handler[Tx] {
	return inbox.Handler[Tx]{Handle: func(context.Context, Tx, *consume.Message) error { return nil }}
}

// effect is a handler that writes the message's ID.
func effect[Tx any](h *handle[Tx]) inbox.Handler[Tx] {
	return inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
		return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID)
	}}
}

// fromHeader is an option that reads a header.
func fromHeader(name string) func(m *consume.Message) string {
	return func(m *consume.Message) string { return m.Headers[name] }
}

func TestTrapOrderInTheInbox(t *testing.T) {
	onAll(t, testTrapOrderInTheInbox[pgx.Tx], testTrapOrderInTheInbox[*sql.Tx])
}

// Messages with one order key are handled one after the other, although the first one fails at first, and there is room
// for all of them at once.
func testTrapOrderInTheInbox[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, &inbox.Options{OrderKey: fromHeader("key")})
	const keys, each = 3, 6
	for i := range keys * each {
		m := message(fmt.Sprintf("%d-%02d", i%keys, i/keys))
		m.Headers = map[string]string{"key": fmt.Sprint("k", i%keys)}
		receive(t, in, m)
	}
	var mu sync.Mutex
	running := map[string]bool{}
	handled := map[string][]string{}
	var failed atomic.Int64
	handler := effect(h)
	write := handler.Handle
	handler.Handle = func(ctx context.Context, tx Tx, m *consume.Message) error {
		key := m.Headers["key"]
		mu.Lock()
		beside := running[key]
		running[key] = true
		mu.Unlock()
		defer func() { mu.Lock(); running[key] = false; mu.Unlock() }()
		if beside {
			return everonce.Permanent("beside", errors.New("two of one key are handled at once"), nil)
		}
		if m.ID == "0-00" && failed.Add(1) <= 2 {
			return errors.New("not now")
		}
		mu.Lock()
		handled[key] = append(handled[key], m.ID)
		mu.Unlock()
		return write(ctx, tx, m)
	}
	opts := &inbox.WorkerOptions{Retry: quick}
	told, _ := working(t, in, opts, handler)
	told.await(t, keys*each+2)
	mu.Lock()
	defer mu.Unlock()
	for key, ids := range handled {
		if len(ids) != each || !slices.IsSorted(ids) {
			t.Errorf("%s: %v", key, ids)
		}
	}
	if len(told.why) != 2 {
		t.Error(told.why)
	}
}

func TestTrapPriorities(t *testing.T) {
	onAll(t, testTrapPriorities[pgx.Tx], testTrapPriorities[*sql.Tx])
}

// A message of a high priority goes before those that came shortly before it, but not before one that has waited for
// longer than the priority is worth.
func testTrapPriorities[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, &inbox.Options{Priority: func(m *consume.Message) int { return len(m.Headers["priority"]) }})
	for i := range 6 {
		m := message(fmt.Sprint("low ", i))
		receive(t, in, m)
		m = message(fmt.Sprint("high ", i))
		m.Headers = map[string]string{"priority": "12345"}
		receive(t, in, m)
	}
	h.must(t, "UPDATE everonce_inbox SET rank = rank - 60000000, created_at = created_at - 60000000 WHERE id = 'low 5'") // it has waited for a minute
	told, _ := working(t, in, &inbox.WorkerOptions{Concurrency: 1}, nothing[Tx]())
	want := []string{
		"low 5", "high 0", "high 1", "high 2", "high 3", "high 4", "high 5", "low 0", "low 1", "low 2", "low 3", "low 4",
	}
	got := told.await(t, len(want))
	for i := range want {
		if got[i] != want[i]+" handled" {
			t.Fatalf("they were handled in the order %v", got)
		}
	}
}

func TestTrapExpired(t *testing.T) {
	onAll(t, testTrapExpired[pgx.Tx], testTrapExpired[*sql.Tx])
}

// A message that is too old is discarded, visibly, and what stands behind it goes on.
func testTrapExpired[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, &inbox.Options{
		OrderKey: fromHeader("key"),
		Expires: func(m *consume.Message) time.Duration {
			if m.ID == "old" {
				return time.Microsecond
			}
			return time.Hour
		},
	})
	for _, id := range []string{"old", "new"} {
		m := message(id)
		m.Headers = map[string]string{"key": "a"}
		receive(t, in, m)
	}
	told, _ := working(t, in, nil, effect(h))
	if got := told.await(t, 2); got[0] != "old expired" || got[1] != "new handled" {
		t.Error(got)
	}
	entries, err := in.Backlog().List(t.Context(), backlog.Filter{States: []backlog.State{backlog.Discarded}})
	if err != nil || len(entries) != 1 || entries[0].ID != "old" || entries[0].Error != "expired" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestTrapALongHandler(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testTrapALongHandler(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testTrapALongHandler(t, onPostgres(t)) })
	onMySQLs(t, testTrapALongHandler[*sql.Tx])
}

// A handler that takes longer than its lease is renewed, and no other worker handles the message.
func testTrapALongHandler[Tx any](t *testing.T, h *handle[Tx]) {
	newInbox(t, h, nil)
	var renewals atomic.Int64
	long := make(chan struct{})
	watched := tampered(t, h, &tampering{around: func(_ context.Context, what string, call func() error) error {
		err := call()
		if what == "inbox_renew" && err == nil && renewals.Add(1) == 5 {
			close(long)
		}
		return err
	}})
	in := newInbox(t, watched, nil)
	receive(t, in, message("1"))
	handler := effect(h)
	write := handler.Handle
	var runs atomic.Int64
	handler.Handle = func(ctx context.Context, tx Tx, m *consume.Message) error {
		runs.Add(1)
		select {
		case <-long: // a third of the lease lies between two renewals
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return write(ctx, tx, m)
	}
	opts := inbox.WorkerOptions{Lease: 900 * time.Millisecond, Poll: 10 * time.Millisecond}
	for range 2 {
		working(t, in, &opts, handler)
	}
	must(t, within(limited(t), "the effect", func() (bool, error) { return h.number(t, "SELECT count(*) FROM effects") == 1, nil }))
	if n := runs.Load(); n != 1 {
		t.Errorf("it was handled %d times", n)
	}
}

func TestTrapAPausedWorker(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testTrapAPausedWorker(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testTrapAPausedWorker(t, onPostgres(t)) })
	onMySQLs(t, testTrapAPausedWorker[*sql.Tx])
}

// A worker that was paused past its lease commits nothing after another one has taken the message: the effect is the
// other's, and the try was counted. (The other worker may give up on its first try on a busy machine, while the
// transaction is open.)
func testTrapAPausedWorker[Tx any](t *testing.T, h *handle[Tx]) {
	newInbox(t, h, nil)
	var taken atomic.Bool
	paused := tampered(t, h, &tampering{around: func(_ context.Context, what string, call func() error) error {
		if what == "inbox_renew" || what == "inbox_claim" && taken.Load() {
			return errors.New("paused")
		}
		return call()
	}})
	in := newInbox(t, paused, nil)
	receive(t, in, message("1"))
	stopped, skipFailed := make(chan struct{}), make(chan struct{})
	told, _ := working(t, in, &inbox.WorkerOptions{Lease: 200 * time.Millisecond, NoListen: true}, inbox.Handler[Tx]{
		Handle: func(_ context.Context, tx Tx, m *consume.Message) error {
			taken.Store(true)
			close(stopped)
			<-skipFailed
			return h.exec(context.WithoutCancel(t.Context()), tx, "INSERT INTO effects (name) VALUES ($1)", "paused")
		},
	})
	<-stopped
	other, _ := working(t, newInbox(t, h, nil), nil, inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
		return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", fmt.Sprint("attempt ", m.Deliveries))
	}})
	other.await(t, 1) // it has taken the message, and waits for the transaction that is open
	close(skipFailed)
	if got := told.await(t, 1); got[0] != "1 lost" {
		t.Error(got, told.why)
	}
	must(t, within(limited(t), "the effect", func() (bool, error) { return h.number(t, "SELECT count(*) FROM effects") > 0, nil }))
	if n, all := h.number(t, "SELECT count(*) FROM effects WHERE name IN ('attempt 2', 'attempt 3')"), h.number(t, "SELECT count(*) FROM effects"); n != 1 || all != 1 {
		t.Errorf("%d effects of the other worker, %d in all", n, all)
	}
}

// A message whose handler takes its process along each time is set aside after its budget, without being handled once
// more: otherwise it would be the first to be claimed after each start.
func TestTrapAMessageThatKills(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	in := newInbox(t, h, nil)
	receive(t, in, message("killer"))
	q := sqlqueue.New(h.sqldb(t), sqlqueue.Spec{Table: "inbox", Group: "consumer", Lane: "type", In: "billing"})
	for range 4 { // a try and three retries
		rows, _, err := sqlqueue.Claim(t.Context(), q, sqlqueue.ClaimRequest{Limit: 1}, common)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
	}
	told, _ := working(t, in, &inbox.WorkerOptions{}, inbox.Handler[*sql.Tx]{Handle: func(context.Context, *sql.Tx, *consume.Message) error {
		t.Error("it was handled once more")
		return nil
	}})
	if got := told.await(t, 1); got[0] != "killer set_aside" {
		t.Error(got, told.why)
	}
}

func TestTrapADoomedTransaction(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testTrapADoomedTransaction(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testTrapADoomedTransaction(t, onPostgres(t)) })
}

// A handler that keeps the error of a statement to itself has no effect, and its message is counted and set aside.
func testTrapADoomedTransaction[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, nil)
	receive(t, in, message("1"))
	told, _ := working(t, in, nil, inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
		if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ('1')"); err != nil {
			return err
		}
		_ = h.exec(ctx, tx, "INSERT INTO nowhere VALUES (1)") //nolint:errcheck // that is the mistake
		return nil
	}})
	got := told.await(t, 4)
	if want := []string{"1 retried", "1 retried", "1 retried", "1 set_aside"}; !slices.Equal(got, want) {
		t.Error(got, told.why)
	}
	if n := h.number(t, "SELECT count(*) FROM effects"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestBadMessages(t *testing.T) {
	onAll(t, testBadMessages[pgx.Tx], testBadMessages[*sql.Tx])
}

// A message that cannot be inserted has a typed error. Any name of a consumer, a key, or a type works.
func testBadMessages[Tx any](t *testing.T, h *handle[Tx]) {
	long := strings.Repeat("x", 256)
	for _, name := range []string{"", long, "a\x00b", "\xff"} {
		if _, err := inbox.New(h.receiver, name, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("consumer %.10q: %v", name, err)
		}
	}
	const odd = `it's {1i} {} {now} {t} $1 ?1 \ "x"`
	in, err := inbox.New(h.receiver, odd, &inbox.Options{OrderKey: func(*consume.Message) string { return odd }})
	must(t, err)
	must(t, in.Migrate(t.Context()))
	for name, b := range map[string]struct {
		m    *consume.Message
		want error
	}{
		"nil":              {nil, everonce.ErrInvalidArgument},
		"no key":           {&consume.Message{}, consume.ErrNoKey},
		"long key":         {&consume.Message{ID: long}, everonce.ErrInvalidArgument},
		"NUL in the key":   {&consume.Message{ID: "a\x00"}, everonce.ErrInvalidArgument},
		"type not UTF-8":   {&consume.Message{ID: "1", Subject: "\xff"}, everonce.ErrInvalidArgument},
		"header not UTF-8": {&consume.Message{ID: "1", Headers: map[string]string{"a": "\xff"}}, everonce.ErrInvalidArgument},
		"large headers":    {&consume.Message{ID: "1", Headers: map[string]string{"a": strings.Repeat("x", 1<<16)}}, everonce.ErrTooLarge},
		"large body":       {&consume.Message{ID: "1", Body: make([]byte, 1<<20+1)}, everonce.ErrTooLarge},
	} {
		if _, err := in.Receive(t.Context(), b.m); !errors.Is(err, b.want) || errors.Is(err, everonce.ErrStore) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := message(odd)
	m.Subject = odd
	receive(t, in, m)
	handler := effect(h)
	handler.Types = []string{odd}
	told, stop := working(t, in, nil, handler)
	if got := told.await(t, 1); got[0] != odd+" handled" {
		t.Error(got, told.why)
	}
	stop()
	if n, err := in.Backlog().Purge(t.Context(), 0, 10); err != nil || n != 1 {
		t.Error(n, err)
	}
}
