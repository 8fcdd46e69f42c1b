package oncetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/memtx"
)

// batches is the tiny database with transactions that take many keys at once.
type batches struct{ *memtx.DB }

func (b batches) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*memtx.Tx], driver.ClaimResult, error) {
	h, res, err := b.DB.Begin(ctx, req)
	if h == nil {
		return nil, res, err
	}
	return batchHandle{h}, res, err
}

func (b batches) Join(ctx context.Context, tx *memtx.Tx) (driver.TxHandle[*memtx.Tx], error) {
	h, err := b.DB.Join(ctx, tx)
	return batchHandle{h}, err
}

type batchHandle struct{ driver.TxHandle[*memtx.Tx] }

func (h batchHandle) ClaimAll(ctx context.Context, all driver.ClaimAllRequest) (res driver.ClaimAllResult, err error) {
	for _, req := range all.Claims {
		claim, claimErr := h.Claim(ctx, req)
		res.Claims, err = append(res.Claims, claim), errors.Join(err, claimErr)
	}
	return res, err
}

func (h batchHandle) CommitAll(ctx context.Context, all driver.CommitAllRequest) (res driver.CommitAllResult, err error) {
	for _, req := range all.Completions {
		if _, err := h.Complete(ctx, req); err != nil {
			return res, errors.Join(driver.ErrConflict, err, h.Rollback(ctx))
		}
	}
	return res, errOf(h.Commit(ctx, driver.CommitRequest{}))
}

// A batch under faults goes the way that it goes in production: many keys by one claim and one commit, and each of
// those can fail.
func TestFaultTxStoreFailsBatches(t *testing.T) {
	items := []everonce.BatchItem{{Key: everonce.Key{Scope: "test", ID: "1"}}, {Key: everonce.Key{Scope: "test", ID: "2"}}}
	for _, tc := range []struct {
		op      Op
		fault   Fault
		effects int // after the first delivery
	}{
		{OpBegin, Pass, 1}, {OpTxClaim, FailBefore, 0}, {OpTxClaim, FailAfter, 0}, {OpCommit, FailBefore, 0}, {OpCommit, FailAfter, 1},
	} {
		db := memtx.New()
		var asked []Op
		recv, err := everonce.NewTxReceiver(FaultTxStore[*memtx.Tx](batches{db}, func(c Call) Fault {
			asked = append(asked, c.Op)
			return At(tc.op, 1, tc.fault)(c)
		}), &everonce.Options{TxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			asked = nil
			all, err := everonce.TransactBatch(t.Context(), recv, items, everonce.EachItem(func(_ context.Context, tx *memtx.Tx, i int) (string, error) {
				return "added", tx.Add(items[i].Key.ID)
			}))
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 && tc.fault == Pass && !slices.Equal(asked, []Op{OpBegin, OpTxClaim, OpCommit}) {
				t.Errorf("the plan was asked about %v", asked)
			}
			for i, res := range all {
				if n := db.Count(items[i].Key.ID); n > 1 || round == 1 && (n != 1 || res.Err != nil) {
					t.Errorf("%v %v, delivery %d: %d effects, %v, %v", tc.op, tc.fault, round+1, n, res.Outcome, res.Err)
				}
			}
		}
		if n := db.Held(); n != 0 {
			t.Errorf("%v %v: %d keys are held by open transactions", tc.op, tc.fault, n)
		}
	}
	for name, store := range map[string]driver.TxStore[*memtx.Tx]{"with": batches{memtx.New()}, "without": memtx.New()} {
		h, _, err := FaultTxStore(store, nil).Begin(t.Context(), driver.BeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, has := h.(driver.TxBatch); has != (name == "with") {
			t.Errorf("%s the power, a wrapped transaction has it: %v", name, has)
		}
	}
}

// errOf is the error of a call whose result is empty.
func errOf[R any](_ R, err error) error { return err }
