package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
)

// A transaction that the server has rolled back, for a deadlock say, is over: an event that is published in it
// nevertheless would commit alone, without its effect.
func TestTrapNothingCommitsByItself(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapNothingCommitsByItself)
}

func testTrapNothingCommitsByItself(t *testing.T, h *handle[*sql.Tx]) {
	ctx := limited(t)
	box, in, sagas := newOutbox(t, h), newInbox(t, h, nil), newSagas(t, h)
	d, err := saga.Define("one", 1, saga.Step[sagaOrder, *sql.Tx]{Name: "a", Final: true, ActionTx: func(context.Context, *sql.Tx, *saga.Call[sagaOrder]) (any, error) { return nil, nil }})
	must(t, err)
	for name, write := range map[string]func(tx *sql.Tx) error{
		"outbox": func(tx *sql.Tx) error {
			return box.Publish(ctx, tx, outbox.Event{Topic: "orders"}, outbox.Event{Topic: "orders"})
		},
		"inbox": func(tx *sql.Tx) error { _, err := in.ReceiveTx(ctx, tx, message("1")); return err },
		"saga":  func(tx *sql.Tx) error { return d.Start(ctx, sagas, tx, "1", sagaOrder{}) },
	} {
		tx, _, rollback, err := h.begin(ctx)
		must(t, err)
		must(t, h.exec(ctx, tx, "ROLLBACK")) // as the server does after a deadlock
		if err := write(tx); !errors.Is(err, everonce.ErrStore) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, rollback())
		if n := h.number(t, "SELECT count(*) FROM everonce_"+name); n != 0 {
			t.Errorf("%s: %d rows committed alone", name, n)
		}
	}
}

// An existing row with another content is a mismatch, although the transaction's snapshot is older, and however the
// client counts rows, and also if the server, as MariaDB from 11.6.2 on, refuses to lock rows newer than the snapshot.
func TestTrapWhatIsThereIsSeen(t *testing.T) {
	t.Parallel()
	onMySQLServers(t, testTrapWhatIsThereIsSeen)
}

func testTrapWhatIsThereIsSeen(t *testing.T, server string) {
	cases := map[string]string{
		"changed rows count": "clientFoundRows=false", "found rows count": "clientFoundRows=true&interpolateParams=true",
		"locks only what its snapshot sees": "innodb_snapshot_isolation=1",
	}
	if strings.HasSuffix(t.Name(), "/mysql") {
		delete(cases, "locks only what its snapshot sees")
	}
	for name, parameters := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, h := onDatabase(t, with(server, parameters))
			ctx := limited(t)
			box, in := newOutbox(t, h), newInbox(t, h, &inbox.Options{})
			tx, _, rollback, err := h.begin(ctx)
			must(t, err)
			defer rollback() //nolint:errcheck // leave nothing behind
			var none int
			must(t, tx.QueryRowContext(ctx, "SELECT count(*) FROM everonce_outbox").Scan(&none)) // the snapshot
			h.publish(t, box, outbox.Event{ID: "1", Topic: "orders", Payload: []byte("{}")}, outbox.Event{ID: "2", Topic: "orders"})
			first := message("1")
			receive(t, in, first)

			must(t, box.Publish(ctx, tx, outbox.Event{ID: "1", Topic: "orders", Payload: []byte("{}")}, outbox.Event{ID: "3", Topic: "orders"}))
			if err := box.Publish(ctx, tx, outbox.Event{ID: "2", Topic: "others"}, outbox.Event{ID: "4", Topic: "orders"}); !errors.Is(err, everonce.ErrMismatch) {
				t.Errorf("another event with the same ID: %v", err)
			}
			if isNew, err := in.ReceiveTx(ctx, tx, first); isNew || err != nil {
				t.Errorf("the same message: %v, %v", isNew, err)
			}
			other := message("1")
			other.Body = []byte("other")
			if _, err := in.ReceiveTx(ctx, tx, other); !errors.Is(err, everonce.ErrMismatch) {
				t.Errorf("another message with the same ID: %v", err)
			}
		})
	}
}

// A repeated insertion in a transaction that stays open locks nothing: relays, workers and runners do not wait for it.
// In a transaction that has ended it fails nevertheless.
func TestTrapWhatComesOnceMoreHoldsUpNobody(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapWhatComesOnceMoreHoldsUpNobody)
}

func testTrapWhatComesOnceMoreHoldsUpNobody(t *testing.T, h *handle[*sql.Tx]) {
	ctx := limited(t)
	box, in, sagas := newOutbox(t, h), newInbox(t, h, &inbox.Options{}), newSagas(t, h)
	d, err := saga.Define("one", 1, saga.Step[sagaOrder, *sql.Tx]{Name: "a", Final: true, ActionTx: func(context.Context, *sql.Tx, *saga.Call[sagaOrder]) (any, error) { return nil, nil }})
	must(t, err)
	for name, write := range map[string]func(tx *sql.Tx) error{
		"outbox": func(tx *sql.Tx) error { return box.Publish(ctx, tx, outbox.Event{ID: "1", Topic: "orders"}) },
		"inbox":  func(tx *sql.Tx) error { _, err := in.ReceiveTx(ctx, tx, message("1")); return err },
		"saga":   func(tx *sql.Tx) error { return d.Start(ctx, sagas, tx, "1", sagaOrder{}) },
	} {
		h.inTx(t, func(_ context.Context, tx *sql.Tx) error { return write(tx) })
		tx, _, rollback, err := h.begin(ctx)
		must(t, err)
		must(t, write(tx))
		if _, err := h.db.ExecContext(ctx, "SELECT seq FROM everonce_"+name+" FOR UPDATE NOWAIT"); err != nil {
			t.Errorf("%s: the row is locked: %v", name, err)
		}
		must(t, h.exec(ctx, tx, "ROLLBACK"))
		if err := write(tx); !errors.Is(err, everonce.ErrStore) {
			t.Errorf("%s, after the transaction's end: %v", name, err)
		}
		must(t, rollback())
	}
}

// A claim locks only the rows that it takes, not those that it passes over; and a renewal or an end of rows holds no
// lock after its statement. Otherwise a process that is stopped in the middle would keep the rows from all others, for
// as long as its connection is open.
func TestTrapAStoppedProcessHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapAStoppedProcessHoldsUpNothingElse)
}

func testTrapAStoppedProcessHoldsUpNothingElse(t *testing.T, h *handle[*sql.Tx]) {
	ctx := limited(t)
	h.publish(t, newOutbox(t, h), append(line("orders", "k", 1), outbox.Event{Topic: "orders"}, outbox.Event{Topic: "orders"})...)
	spec := sqlqueue.Spec{Table: "outbox", Group: "topic", Lane: "topic"}
	claim := func(db sqldb.Database, n int) (seqs []int64, token int64) {
		t.Helper()
		rows, token, err := sqlqueue.Claim(ctx, sqlqueue.New(db, spec), sqlqueue.ClaimRequest{Limit: 10, Lease: time.Minute},
			func(r *sqlqueue.Row) (*sqlqueue.Row, []any) { return r, nil })
		must(t, err)
		for _, r := range rows {
			seqs = append(seqs, r.Seq)
		}
		if len(rows) != n {
			t.Fatalf("%d rows were claimed, want %d", len(rows), n)
		}
		return seqs, token
	}
	seqs, token := claim(h.sqldb(t), 3)
	statements := 0
	claim(&tamperedDB[*sql.Tx]{h.sqldb(t), &tampering{around: func(_ context.Context, what string, call func() error) error {
		err := call()
		if what == "write" { // it has ended
			return err
		}
		statements++
		if _, locked := h.db.ExecContext(ctx, "SELECT seq FROM everonce_outbox FOR UPDATE NOWAIT"); locked != nil {
			t.Errorf("after %s, a row in the hand of another is locked: %v", what, locked)
		}
		return err
	}}}, 0)
	if statements == 0 {
		t.Error("the claim sent nothing")
	}

	h.db.SetMaxOpenConns(1)
	commits := func() (n int) {
		t.Helper()
		var name string
		must(t, h.db.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Com_commit'").Scan(&name, &n))
		return n
	}
	q, before := sqlqueue.New(h.sqldb(t), spec), commits()
	if kept, err := q.Renew(ctx, token, seqs, time.Minute); kept != 3 || err != nil {
		t.Errorf("%d rows were renewed, %v", kept, err)
	}
	if lost, err := q.End(ctx, token, sqlqueue.End{Seq: seqs[0]}, sqlqueue.End{Seq: seqs[1]}, sqlqueue.End{Seq: seqs[2]}); lost != 0 || err != nil {
		t.Errorf("%d rows were lost, %v", lost, err)
	}
	if n := commits() - before; n != 0 {
		t.Errorf("a renewal and an end were %d transactions of several statements", n)
	}
}

// An event that a transaction has locked holds up itself, and not those before it with the same key.
func TestTrapALockedEventHoldsUpNoHead(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapALockedEventHoldsUpNoHead)
}

func testTrapALockedEventHoldsUpNoHead(t *testing.T, h *handle[*sql.Tx]) {
	ctx := limited(t)
	box, to := newOutbox(t, h), newSink()
	h.publish(t, box, line("orders", "k", 3)...)
	tx, _, rollback, err := h.begin(ctx)
	must(t, err)
	defer rollback() //nolint:errcheck // after the first it does nothing
	must(t, h.exec(ctx, tx, "SELECT seq FROM everonce_outbox ORDER BY seq DESC LIMIT 1 FOR UPDATE"))
	relaying(t, box, to.publisher(), nil)
	to.awaitCount(t, 2)
	must(t, rollback())
	to.awaitCount(t, 3)
}
