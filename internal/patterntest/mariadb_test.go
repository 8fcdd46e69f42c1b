package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
)

// What the server has rolled back, for a deadlock say, is no transaction any more: an event that is published in it all the same
// would commit by itself, without its effect.
func TestTrapNothingCommitsByItself(t *testing.T) {
	t.Parallel()
	h, ctx := onMariaDB(t), limited(t)
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
			t.Errorf("%s: %d rows committed by themselves", name, n)
		}
	}
}

// What is there with another content is a mismatch, although the transaction's snapshot is older, and however the client counts rows, and
// also where the server, as MariaDB from 11.6.2 on, refuses to lock what is newer than the snapshot.
func TestTrapWhatIsThereIsSeen(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{
		"changed rows count": "", "found rows count": "?clientFoundRows=true&interpolateParams=true",
		"locks only what its snapshot sees": "?innodb_snapshot_isolation=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, database := mariaDB(t)
			h, ctx := mariaDBHandle(t, address+parameters, database), limited(t)
			h.ready(t)
			box, in := newOutbox(t, h), newInbox(t, h, &inbox.Options{})
			tx, _, rollback, err := h.begin(ctx)
			must(t, err)
			defer rollback() //nolint:errcheck // nothing is to stay
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

// What comes once more in a transaction that stays open locks nothing: relays, workers and runners do not wait for it. In what is no
// transaction any more it fails all the same.
func TestTrapWhatComesOnceMoreHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h, ctx := onMariaDB(t), limited(t)
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

// An event that a transaction has locked holds up itself, and not those before it with the same key.
func TestTrapALockedEventHoldsUpNoHead(t *testing.T) {
	t.Parallel()
	h, ctx := onMariaDB(t), limited(t)
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
