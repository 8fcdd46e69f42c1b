package oncetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/memtx"
)

// addOnce adds one effect in a transaction of everonce's, through a plan.
func addOnce(ctx context.Context, t *testing.T, db *memtx.DB, plan Plan) (everonce.Result[string], error) {
	t.Helper()
	recv, err := everonce.NewTxReceiver(FaultTxStore[*memtx.Tx](db, plan), &everonce.Options{TxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return everonce.Transact(ctx, recv, testKey, func(_ context.Context, tx *memtx.Tx) (string, error) { return "added", tx.Add("x") })
}

// TestFaultTxStore lets each call of a transaction fail: what is committed, and whether anything is left open.
func TestFaultTxStore(t *testing.T) {
	for _, tc := range []struct {
		op      Op
		fault   Fault
		effects int
		unknown bool
	}{
		{OpBegin, FailBefore, 0, false},
		{OpBegin, FailAfter, 0, false},
		{OpCommit, FailBefore, 0, true},
		{OpCommit, FailAfter, 1, true},
		{OpCommit, Pass, 1, false},
	} {
		db := memtx.New()
		// Without retries, so that the fault itself is seen.
		res, err := addOnce(t.Context(), t, db, At(tc.op, 1, tc.fault))
		if db.Count("x") != tc.effects || (res.Outcome == everonce.Unknown) != tc.unknown || (err == nil) != (tc.fault == Pass) {
			t.Errorf("%v %v: %d effects, %v (%v)", tc.op, tc.fault, db.Count("x"), res.Outcome, err)
		}
		if n := db.Held(); n != 0 {
			t.Errorf("%v %v: %d transactions are open", tc.op, tc.fault, n)
		}
		again, err := addOnce(t.Context(), t, db, nil)
		if err != nil || db.Count("x") != 1 || (again.Outcome == everonce.Replayed) != (tc.effects == 1) {
			t.Errorf("%v %v, and again: %d effects, %v (%v)", tc.op, tc.fault, db.Count("x"), again.Outcome, err)
		}
	}
}

// TestFaultTxHandle lets each statement of a joined transaction fail, and a rollback, which is made all the same.
func TestFaultTxHandle(t *testing.T) {
	ctx := t.Context()
	for op, call := range map[Op]func(driver.TxHandle[*memtx.Tx]) error{
		OpTxClaim:    func(h driver.TxHandle[*memtx.Tx]) error { _, err := h.Claim(ctx, claimOf(testKey)); return err },
		OpTxGet:      func(h driver.TxHandle[*memtx.Tx]) error { _, err := h.Get(ctx, driver.GetRequest{}); return err },
		OpTxComplete: func(h driver.TxHandle[*memtx.Tx]) error { return errOf(h.Complete(ctx, driver.CompleteRequest{})) },
		OpRecord: func(h driver.TxHandle[*memtx.Tx]) error {
			return errOf(h.Record(ctx, driver.RecordRequest{Claim: claimOf(testKey)}))
		},
		OpTxRenew:          func(h driver.TxHandle[*memtx.Tx]) error { return errOf(h.Renew(ctx, driver.RenewRequest{})) },
		OpSavepoint:        func(h driver.TxHandle[*memtx.Tx]) error { return h.Savepoint(ctx, "s") },
		OpRollbackTo:       func(h driver.TxHandle[*memtx.Tx]) error { return h.RollbackTo(ctx, "s") },
		OpReleaseSavepoint: func(h driver.TxHandle[*memtx.Tx]) error { return h.ReleaseSavepoint(ctx, "s") },
		OpCommit:           func(h driver.TxHandle[*memtx.Tx]) error { return errOf(h.Commit(ctx, driver.CommitRequest{})) },
		OpRollback:         func(h driver.TxHandle[*memtx.Tx]) error { return h.Rollback(ctx) },
	} {
		db := memtx.New()
		var asked []Op
		store := FaultTxStore[*memtx.Tx](db, func(c Call) Fault {
			asked = append(asked, c.Op)
			return FailBefore
		})
		raw, _, err := db.Begin(ctx, driver.BeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := store.Join(t.Context(), raw.Tx())
		if err != nil || h.Tx() != raw.Tx() {
			t.Fatalf("joined: %v", err)
		}
		err = call(h)
		if !errors.Is(err, ErrInjected) || len(asked) != 1 || asked[0] != op {
			t.Errorf("%v: %v; the plan was asked about %v", op, err, asked)
		}
		if err := raw.Tx().Add("x"); (err != nil) != (op == OpCommit || op == OpRollback) {
			t.Errorf("%v failed before it was made, and then the transaction says: %v", op, err)
		}
		want := driver.TxErrorOther
		if op == OpCommit {
			want = driver.TxErrorCommitLost
		}
		if got := store.ClassifyTx(err); got != want {
			t.Errorf("%v: classified as %v, want %v", op, got, want)
		}
	}
	if got := FaultTxStore[int](calledTx{called: &called{}}, nil).ClassifyTx(errors.New("busy")); got != driver.TxErrorRetry {
		t.Errorf("an error of the store's own is classified as %v", got)
	}
}
