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

// A transaction that the server ended, because its work was idle or took too long, has surely committed nothing. The
// error says so, and the work does not run again.
func TestTransactionThatTheServerHasEnded(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testEndedByTheServer[pgx.Tx], testEndedByTheServer[*sql.Tx])
}

func testEndedByTheServer[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, timeout := range []string{"idle_in_transaction_session_timeout", "transaction_timeout"} {
		t.Run(timeout, func(t *testing.T) {
			if number(t, "SELECT count(*) FROM pg_settings WHERE name = $1", timeout) == 0 {
				t.Skip("the server is older than the setting")
			}
			runs := 0
			res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "ended", ID: timeout}, func(ctx context.Context, tx Tx) (string, error) {
				runs++
				noErr(t, h.effect(ctx, tx, timeout))
				err := h.exec(ctx, tx, "SET LOCAL "+timeout+" = 1 /* "+h.schema+" */") // from here on
				for start := time.Now(); number(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SET LOCAL %'||$1||'%'", h.schema) > 0; {
					if time.Since(start) > 10*time.Second {
						t.Fatal("the server has not ended the transaction")
					}
				}
				return "v", err
			})
			if err == nil || res.Outcome != everonce.Failed || errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
				t.Errorf("%v after %d runs, %v", res.Outcome, runs, err)
			}
			if n := h.effects(t, timeout); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// The limit of a transaction ends with it: it does not close the connection that by then is another's.
func TestALimitEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 1}, testLimitEnds[pgx.Tx], testLimitEnds[*sql.Tx])
}

func testLimitEnds[Tx any](t *testing.T, h *handle[Tx]) {
	const limit = 4 * time.Second // more than it takes to end a transaction, on a busy machine too
	ctx := t.Context()
	for what, end := range map[string]func(tx driver.TxHandle[Tx], done *driver.CompleteRequest) error{
		"commit": func(tx driver.TxHandle[Tx], done *driver.CompleteRequest) error {
			return errOf(tx.Commit(ctx, driver.CommitRequest{Complete: done}))
		},
		"rollback": func(tx driver.TxHandle[Tx], _ *driver.CompleteRequest) error { return tx.Rollback(ctx) },
	} {
		claim := txClaimOf(everonce.Key{Scope: "limit", ID: what})
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim, Timeout: limit})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		done := completionOf(&rec, "v")
		noErr(t, end(tx, &done))
		other, err := h.begin(ctx, sql.LevelDefault)
		noErr(t, err)
		if err := h.exec(ctx, other, "SELECT pg_sleep($1::float8)", (limit + limit/5).Seconds()); err != nil {
			t.Errorf("after a %s another transaction meets its limit: %v", what, err)
		}
		noErr(t, h.abort(ctx, other))
	}
}
