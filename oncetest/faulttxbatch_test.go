package oncetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/everonce/everonce"
)

// batches is the tiny database with transactions that take many keys at once.
type batches struct{ *database }

func (b batches) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[*dbTx], everonce.ClaimResult, error) {
	h, res, err := b.database.Begin(ctx, req)
	if own, ok := h.(*dbHandle); ok {
		return batchHandle{own}, res, err
	}
	return h, res, err
}

func (b batches) Join(tx *dbTx) (everonce.TxHandle[*dbTx], error) {
	return batchHandle{&dbHandle{tx}}, nil
}

type batchHandle struct{ *dbHandle }

func (h batchHandle) ClaimAll(ctx context.Context, reqs []everonce.ClaimRequest) (all []everonce.ClaimResult, err error) {
	for _, req := range reqs {
		res, claimErr := h.Claim(ctx, req)
		all, err = append(all, res), errors.Join(err, claimErr)
	}
	return all, err
}

func (h batchHandle) CommitAll(ctx context.Context, reqs []everonce.CompleteRequest) error {
	for _, req := range reqs {
		if err := h.Complete(ctx, req); err != nil {
			return errors.Join(everonce.ErrConflict, err, h.Rollback(ctx))
		}
	}
	return h.Commit(ctx, everonce.CommitRequest{})
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
		db := newDatabase()
		var asked []Op
		recv, err := everonce.NewTxReceiver(FaultTxStore[*dbTx](batches{db}, func(c Call) Fault {
			asked = append(asked, c.Op)
			return At(tc.op, 1, tc.fault)(c)
		}), &everonce.Options{TxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			asked = nil
			all, err := everonce.TransactBatch(t.Context(), recv, items, everonce.EachItem(func(_ context.Context, tx *dbTx, i int) (string, error) {
				return "added", tx.add(items[i].Key.ID)
			}))
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 && tc.fault == Pass && !slices.Equal(asked, []Op{OpBegin, OpTxClaim, OpCommit}) {
				t.Errorf("the plan was asked about %v", asked)
			}
			for i, res := range all {
				if n := db.effects[items[i].Key.ID]; n > 1 || round == 1 && (n != 1 || res.Err != nil) {
					t.Errorf("%v %v, delivery %d: %d effects, %v, %v", tc.op, tc.fault, round+1, n, res.Outcome, res.Err)
				}
			}
		}
		if n := db.open(); n != 0 {
			t.Errorf("%v %v: %d keys are held by open transactions", tc.op, tc.fault, n)
		}
	}
	for name, store := range map[string]everonce.TxStore[*dbTx]{"with": batches{newDatabase()}, "without": newDatabase()} {
		h, _, err := FaultTxStore(store, nil).Begin(t.Context(), everonce.BeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, has := h.(everonce.TxBatch); has != (name == "with") {
			t.Errorf("%s the power, a wrapped transaction has it: %v", name, has)
		}
	}
}
