package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
)

// row is a row that another program inserts: an SQL expression for each column.
type row map[string]string

// foreign inserts a row as another program does, with some columns that differ from what the how-to says.
func (h *handle[Tx]) foreign(t testing.TB, table string, base, other row) {
	t.Helper()
	now := fmt.Sprint(time.Now().UnixMicro())
	all := row{"order_key": "''", "state": "0", "attempts": "0", "rank": now, "due_at": now, "created_at": now, "token": "0", "error": "''"}
	maps.Copy(all, base)
	maps.Copy(all, other)
	names := slices.Sorted(maps.Keys(all))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = all[name]
	}
	h.must(t, "INSERT INTO everonce_"+table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
}

func (h *handle[Tx]) foreignEvent(t testing.TB, id string, other row) {
	t.Helper()
	h.foreign(t, "outbox", row{"id": "'" + id + "'", "topic": "'orders'", "type": "''", "content_type": "'text/plain'", "headers": "''", "payload": "'x'"}, other)
}

// setAside waits until so many rows are blocked, and expects them to say that they are corrupt, with their numbers. It
// discards them by these.
func setAside(t testing.TB, b *backlog.Table, want int) {
	t.Helper()
	ctx := limited(t)
	must(t, within(ctx, fmt.Sprint(want, " rows are set aside"), func() (bool, error) {
		s, err := b.Stats(ctx)
		return s.Blocked >= want && s.Waiting+s.InHand == 0, err
	}))
	entries, err := b.List(ctx, backlog.Filter{States: []backlog.State{backlog.Blocked}})
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Error, "corrupt: ") || !strings.Contains(e.Error, fmt.Sprint("row ", e.Seq)) {
			t.Errorf("%q was set aside with %q", e.ID, e.Error)
		}
		if n, err := b.Discard(ctx, backlog.Filter{Seq: e.Seq}); n != 1 || err != nil {
			t.Errorf("%q: %d were discarded, %v", e.ID, n, err)
		}
	}
	if s, err := b.Stats(ctx); err != nil || len(entries) != want || s != (backlog.Stats{Lag: s.Lag}) || s.Lag > time.Hour {
		t.Errorf("%d were set aside, want %d, then %+v, %v", len(entries), want, s, err)
	}
}

// SQLite keeps a value of any type in any column. A value that another program wrote is published if it converts
// without loss, and is set aside otherwise. It stops no other event.
func TestForeignRowsInAnOutboxOfSQLite(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box, to := newOutbox(t, h), newSink()
	now := time.Now().UnixMicro()
	good := map[string]row{
		"payload as text": {"payload": "'it is'"}, "payload as number": {"payload": "17"}, "headers as blob": {"headers": `X'7B7D'`},
		"times as float": {"rank": fmt.Sprint(now, ".25"), "due_at": fmt.Sprint(now, ".5"), "created_at": fmt.Sprint(now, ".75")},
		"plain":          {}, "ordered": {"order_key": "'k'"},
	}
	bad := map[string]row{
		"payload as float": {"payload": "1.5"}, "seconds as float": {"created_at": "1764397177.25"}, "rank as text": {"rank": "'soon'"},
		"due as text": {"due_at": "'2026-11-29 10:00:00'"}, "ordered, due as text": {"due_at": "'soon'", "order_key": "'k2'"},
		"created as text": {"created_at": "'now'"}, "attempts as text": {"attempts": "'none'"}, "topic as blob": {"topic": "X'61'"},
		"id as blob": {"id": "X'61'"}, "type not UTF-8": {"type": "CAST(X'FF' AS TEXT)"}, "id empty": {"id": "''"}, "order key as blob": {"order_key": "X'61'"},
		"headers not UTF-8": {"headers": `CAST(X'7B2261223A22FF227D' AS TEXT)`}, "number in the headers": {"headers": `'{"a": 1}'`},
	}
	for id, other := range bad {
		h.foreignEvent(t, id, other)
	}
	for id, other := range good {
		h.foreignEvent(t, id, other)
	}
	if s, err := box.Backlog().Stats(ctx); err != nil || s.Waiting+s.Delayed != len(good)+len(bad) {
		t.Errorf("%+v, %v", s, err)
	}
	if entries, err := box.Backlog().List(ctx, backlog.Filter{}); err != nil || len(entries) != len(good)+len(bad) {
		t.Errorf("%d are listed, %v", len(entries), err)
	}
	stop := relaying(t, box, to.publisher(), nil)
	for _, e := range to.awaitCount(t, len(good)) {
		if _, ok := good[e.ID]; !ok {
			t.Errorf("%s was published", e.ID)
		}
		if want := map[string]string{"payload as text": "it is", "payload as number": "17"}[e.ID]; want != "" && string(e.Payload) != want {
			t.Errorf("%s has the payload %q", e.ID, e.Payload)
		}
		if age := time.Since(e.CreatedAt); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is %v old", e.ID, age)
		}
	}
	setAside(t, box.Backlog(), len(bad))
	stop()
	h.foreignEvent(t, "spoilt", row{"state": "4", "done_at": "1", "headers": "'no JSON'"})
	archived := 0
	_, err := box.Archive(ctx, 0, func(_ context.Context, _ *sql.Tx, events []outbox.Event) error { archived += len(events); return nil })
	if err != nil || archived != len(good) {
		t.Errorf("%d were archived, %v", archived, err)
	}
	entries, err := box.Backlog().List(ctx, backlog.Filter{States: []backlog.State{backlog.Dead}})
	if err != nil || len(entries) != 1 || entries[0].ID != "spoilt" || !strings.HasPrefix(entries[0].Error, "corrupt: ") {
		t.Errorf("what cannot be archived: %+v, %v", entries, err)
	}
	if e, err := box.Get(ctx, "spoilt"); !errors.Is(err, everonce.ErrCorruptRecord) || e == nil || string(e.Payload) != "x" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A row that no claim finds is found behind thousands of events that wait for their time, and so is each of many.
func TestForeignRowsBehindManyEvents(t *testing.T) {
	t.Parallel()
	h, ctx := onSQLite(t), limited(t)
	box := newOutbox(t, h)
	insert := func(from, to int, due string) {
		h.must(t, fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT %d UNION ALL SELECT n + 1 FROM c WHERE n < %d) INSERT INTO everonce_outbox"+
			" (id, topic, order_key, type, content_type, headers, payload, state, attempts, rank, due_at, created_at, token, error)"+
			" SELECT n, 'orders', '', '', 'text/plain', '', 'x', 0, 0, %[3]s, %[3]s, 1, 0, '' FROM c", from, to, due))
	}
	const odd = 12 // more than one look claims
	insert(1, 2500, fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
	insert(2501, 2500+odd, "'soon'")
	relaying(t, box, newSink().publisher(), nil)
	must(t, within(ctx, "the odd rows are set aside", func() (bool, error) {
		s, err := box.Backlog().Stats(ctx)
		return s.Blocked == odd && s.Delayed == 2500, err
	}))
}

func TestForeignNumbersInAnOutbox(t *testing.T) {
	onAll(t, testForeignNumbersInAnOutbox[pgx.Tx], testForeignNumbersInAnOutbox[*sql.Tx])
}

// A number that no program should write stops no other event, nor an operator, in any database.
func testForeignNumbersInAnOutbox[Tx any](t *testing.T, h *handle[Tx]) {
	box, to := newOutbox(t, h), newSink()
	const largest, smallest = "9223372036854775807", "-9223372036854775807"
	good := map[string]row{"attempts": {"attempts": largest}, "rank": {"rank": smallest}, "due": {"due_at": smallest}, "token": {"token": largest}, "zero": {"created_at": "0", "rank": "0"}}
	bad := map[string]row{"before": {"attempts": smallest}, "late": {"created_at": largest}, "early": {"created_at": smallest}, "headers": {"headers": "'[]'"}}
	for id, other := range bad {
		h.foreignEvent(t, id, other)
	}
	for id, other := range good {
		h.foreignEvent(t, id, other)
	}
	if s, err := box.Backlog().Stats(t.Context()); err != nil || s.Waiting != len(good)+len(bad) || s.Lag > time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
	relaying(t, box, to.publisher(), nil)
	for _, e := range to.awaitCount(t, len(good)) {
		if _, ok := good[e.ID]; !ok {
			t.Errorf("%s was published", e.ID)
		}
	}
	entries, err := box.Backlog().List(t.Context(), backlog.Filter{})
	must(t, err)
	for _, e := range entries {
		if _, err := e.CreatedAt.MarshalJSON(); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
	setAside(t, box.Backlog(), len(bad))
}

// first waits for the first of what comes.
func first[T any](t testing.TB, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(hung):
		t.Error("nothing came")
	}
	return v
}

// The same in an inbox, whose workers choose by type, and among sagas, whose runners choose by definition.
func TestForeignRowsInAnInboxOfSQLite(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	in := newInbox(t, h, nil)
	insert := func(id string, other row) {
		h.foreign(t, "inbox", row{
			"id": "'" + id + "'", "consumer": "'billing'", "type": "'placed'", "source": "''", "content_type": "''", "headers": "''", "body": "'x'", "priority": "0", "expires_at": "0",
		}, other)
	}
	for id, other := range map[string]row{"type": {"type": "X'61'"}, "expires": {"expires_at": "'never'"}, "due": {"due_at": "'soon'"}, "headers": {"headers": "'no JSON'"}} {
		insert(id, other)
	}
	insert("text", row{"body": "'it is'"})
	handled := make(chan string, 10)
	working(t, in, nil, inbox.Handler[*sql.Tx]{Types: []string{"placed"}, Handle: func(_ context.Context, _ *sql.Tx, m *consume.Message) error {
		handled <- string(m.Body)
		return nil
	}})
	if body := first(t, handled); body != "it is" {
		t.Errorf("the body is %q", body)
	}
	setAside(t, in.Backlog(), 4)
}

func TestForeignRowsAmongSagasOfSQLite(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	sagas, err := saga.New(h.receiver)
	must(t, err)
	must(t, sagas.Migrate(t.Context()))
	ran := make(chan string, 10)
	d, err := saga.Define("d", 1, saga.Step[string, *sql.Tx]{Name: "a", Final: true, Action: func(_ context.Context, c *saga.Call[string]) (any, error) {
		ran <- c.Input
		return nil, nil
	}})
	must(t, err)
	h.inTx(t, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range []string{"input", "cause", "due"} {
			if err := d.Start(ctx, sagas, tx, id, "it is"); err != nil {
				return err
			}
		}
		return nil
	})
	h.must(t, "UPDATE everonce_saga SET input = CAST(input AS TEXT) WHERE id = 'input'")
	h.must(t, "UPDATE everonce_saga SET cause = X'FF' WHERE id = 'cause'")
	h.must(t, "UPDATE everonce_saga SET due_at = 'soon' WHERE id = 'due'")
	runner, err := sagas.Runner(nil, d)
	must(t, err)
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(running) }()
	defer func() { stop(); must(t, <-done) }()
	if input := first(t, ran); input != "it is" {
		t.Errorf("the input is %q", input)
	}
	setAside(t, sagas.Backlog(), 2)
}
