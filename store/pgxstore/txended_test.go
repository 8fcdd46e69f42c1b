package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// overSQL runs a test over database/sql, with pgx's own driver and with one that wraps it.
func overSQL(t *testing.T, test func(*testing.T, *handle[*sql.Tx])) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, setup) *handle[*sql.Tx]{"stdlib": newSQL, "wrapped": newWrapped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, setup{}))
		})
	}
}

var errNo = errors.New("no")

// A COMMIT where no transaction is open is an error: a transaction that the work has ended, which it must not do, is
// never reported as done.
func TestCommitOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	both(t, setup{}, func(t *testing.T, h *handle[pgx.Tx]) {
		testCommitOfEnded(t, h, map[string]func(context.Context, pgx.Tx) error{
			"COMMIT":   func(ctx context.Context, tx pgx.Tx) error { return h.exec(ctx, tx, "COMMIT") },
			"ROLLBACK": func(ctx context.Context, tx pgx.Tx) error { return h.exec(ctx, tx, "ROLLBACK") },
		})
	}, func(t *testing.T, h *handle[*sql.Tx]) {
		testCommitOfEnded(t, h, map[string]func(context.Context, *sql.Tx) error{
			"COMMIT":   func(ctx context.Context, tx *sql.Tx) error { return h.exec(ctx, tx, "COMMIT") },
			"ROLLBACK": func(ctx context.Context, tx *sql.Tx) error { return h.exec(ctx, tx, "ROLLBACK") },
			"Commit":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			"Rollback": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		})
	})
}

func testCommitOfEnded[Tx any](t *testing.T, h *handle[Tx], ends map[string]func(context.Context, Tx) error) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, end := range ends {
		for how, opts := range map[string][]everonce.CallOption{", claim first": nil, ", optimistic": {everonce.Optimistic()}} {
			key := everonce.Key{Scope: "ended", ID: name + how}
			res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
				return "v", errors.Join(h.effect(ctx, tx, key.ID), end(ctx, tx))
			}, opts...)
			if res.Outcome != everonce.Failed || !errors.Is(err, driver.ErrStore) {
				t.Errorf("%s: %v, %v; want failed, by the store", key.ID, res.Outcome, err)
			}
			got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
			if noErr(t, err); got.Found {
				t.Errorf("%s: there is a record, %v", key.ID, got.Record.State)
			}
		}
	}
}

// The end of its time is not the work's doing, though database/sql answers to both that the transaction has ended.
func TestTheEndOfItsTimeIsNotTheWorks(t *testing.T) {
	t.Parallel()
	overSQL(t, func(t *testing.T, h *handle[*sql.Tx]) {
		receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{TxTimeout: time.Second})
		noErr(t, err)
		for then, workErr := range map[string]error{"returns": nil, "fails": errNo} {
			key := everonce.Key{Scope: "time", ID: then}
			res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
				noErr(t, h.effect(ctx, tx, key.ID))
				<-ctx.Done()
				for err := error(nil); !errors.Is(err, sql.ErrTxDone); { // until database/sql has rolled it back
					_, err = tx.ExecContext(t.Context(), "SELECT 1")
				}
				return "v", workErr
			})
			if n := h.effects(t, key.ID); !errors.Is(err, driver.ErrTxTooLong) || res.Outcome != everonce.Failed || n != 0 {
				t.Errorf("%s: %v, %v, with %d effects; want failed, too long, with none", then, res.Outcome, err, n)
			}
		}
	})
}

// A DoTx whose work commits the caller's own transaction by the method is doomed, and records nothing. The reference
// says why it is not reported as unknown.
func TestDoTxThatCommitsByTheMethod(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDoTxCommits[pgx.Tx], testDoTxCommits[*sql.Tx])
}

func testDoTxCommits[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for says, workErr := range map[string]error{"returns": nil, "fails": errNo, "refuses": everonce.Permanent("no", nil, nil)} {
		key := everonce.Key{Scope: "DoTx commits", ID: says}
		tx, err := h.begin(t.Context(), sql.LevelDefault)
		noErr(t, err)
		for try := range 2 {
			_, err := everonce.DoTx(t.Context(), tx, receiver, key, func(ctx context.Context) (string, error) {
				if try > 0 {
					t.Errorf("%s: the work runs in a transaction that is doomed", says)
				}
				noErr(t, errors.Join(h.effect(ctx, tx, key.ID), h.commit(ctx, tx)))
				return "v", workErr
			})
			if !errors.Is(err, driver.ErrTxDoomed) {
				t.Errorf("%s: %v, want doomed", says, err)
			}
		}
		got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
		if noErr(t, err); got.Found {
			t.Errorf("%s: there is a record, %v", says, got.Record.State)
		}
	}
}
