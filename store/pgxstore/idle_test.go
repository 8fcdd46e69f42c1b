package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
)

// A transaction that the server has ended, because its work was idle for too long, has surely committed nothing: that
// is told, and the work is not run again.
func TestTransactionThatWasIdleForTooLong(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testIdleTooLong[pgx.Tx], testIdleTooLong[*sql.Tx])
}

func testIdleTooLong[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	runs := 0
	res, err := everonce.Transact(t.Context(), receiver, testKey, func(ctx context.Context, tx Tx) (string, error) {
		runs++
		noErr(t, h.effect(ctx, tx, "charge"))
		err := h.exec(ctx, tx, "SET LOCAL idle_in_transaction_session_timeout = 1 /* "+h.schema+" */") // from here on
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
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
}
