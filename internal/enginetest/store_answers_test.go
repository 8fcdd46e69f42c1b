package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// oddStore is a store that answers each claim with a decision that is no answer to it.
type oddStore struct {
	*mapStore
	decision driver.Decision
}

func (s oddStore) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.mapStore.Claim(ctx, req)
	res.Decision = s.decision
	return res, err
}

func (s oddStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*mapTx], driver.ClaimResult, error) {
	h, res, err := s.mapStore.Begin(ctx, req)
	if err != nil || req.Claim == nil {
		return oddHandle{h, s.decision}, res, err
	}
	res.Decision = s.decision
	return nil, res, h.Rollback(ctx)
}

func (s oddStore) Join(ctx context.Context, tx *mapTx) (driver.TxHandle[*mapTx], error) {
	h, err := s.mapStore.Join(ctx, tx)
	return oddHandle{h, s.decision}, err
}

type oddHandle struct {
	driver.TxHandle[*mapTx]
	decision driver.Decision
}

func (h oddHandle) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := h.TxHandle.Claim(ctx, req)
	res.Decision = h.decision
	return res, err
}

// An invalid answer is the store's failure: it is neither a granted claim nor a duplicate (rule 7).
func TestInvalidAnswersOfAStore(t *testing.T) {
	for _, decision := range []driver.Decision{0, driver.DecideAbsent, driver.DecideReleased, driver.DecideEnded, 99} {
		t.Run(fmt.Sprint(int(decision)), func(t *testing.T) {
			s := oddStore{newMapStore(), decision}
			do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrStore)

			x := newTxReceiver(t, s, nil)
			res, err := everonce.Transact(context.Background(), x, keyOf("in a transaction"), txNever(t))
			checkOutcome(t, res, err, everonce.StoreFailed, everonce.ErrStore)
			all, err := everonce.TransactBatch(context.Background(), x, items("a", "b"), func(context.Context, *mapTx, []int) ([]int, error) {
				t.Error("the work ran")
				return nil, nil
			})
			checkErr(t, err, nil)
			for _, r := range all {
				checkOutcome(t, r.Result, r.Err, everonce.StoreFailed, everonce.ErrStore)
			}
			tx := s.begin()
			doTx(t, x, tx, keyOf("joined"), withinNever(t), everonce.StoreFailed, everonce.ErrStore)
			tx.Rollback()
			s.checkIdle(t)
		})
	}
}

// shortStore answers fewer claims of a batch than it was asked.
type shortStore struct{ batchStore }

func (s shortStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*mapTx], driver.ClaimResult, error) {
	h, res, err := s.batchStore.Begin(ctx, req)
	if b, ok := h.(*batchHandle); ok {
		return shortHandle{b}, res, err
	}
	return h, res, err
}

type shortHandle struct{ *batchHandle }

func (h shortHandle) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (driver.ClaimAllResult, error) {
	res, err := h.batchHandle.ClaimAll(ctx, req)
	res.Claims = res.Claims[:1]
	return res, err
}

// So is an answer to fewer claims than were sent: it is unknown which are answered.
func TestABatchIsAnsweredInFull(t *testing.T) {
	s := shortStore{batchStore{newMapStore()}}
	all, err := everonce.TransactBatch(context.Background(), newTxReceiver(t, s, nil), items("a", "b"), func(context.Context, *mapTx, []int) ([]int, error) {
		t.Error("the work ran")
		return nil, nil
	})
	checkErr(t, err, nil)
	for _, r := range all {
		checkOutcome(t, r.Result, r.Err, everonce.StoreFailed, everonce.ErrStore)
	}
	s.checkIdle(t)
}
