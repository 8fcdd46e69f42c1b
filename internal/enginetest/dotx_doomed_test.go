package enginetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A surrounding call does not commit writes that a DoTx could not undo, whatever its work makes of the error, for
// every receiver and context, and however many others are doomed meanwhile (rule 17).
func TestADoomedTransactionIsNotCommitted(t *testing.T) {
	ctx := context.Background()
	for name, around := range map[string]func(s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error{
		"DoTx": func(s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			tx := s.begin()
			defer tx.Rollback()
			_, err := everonce.DoTx(ctx, tx, x, keyOf("around"), func(ctx context.Context) (int, error) { return w(ctx, tx) })
			return err
		},
		"Transact": func(_ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			_, err := everonce.Transact(ctx, x, keyOf("around"), w)
			return err
		},
		"InTx": func(_ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			return x.InTx(ctx, func(ctx context.Context, tx *mapTx) error { _, err := w(ctx, tx); return err })
		},
		"TransactBatch": func(_ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			res, err := everonce.TransactBatch(ctx, x, items("around", "beside"), everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (int, error) {
				return w(ctx, tx)
			}))
			if err == nil {
				err = res[0].Err
			}
			return err
		},
		"StepTx": func(s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) (err error) {
			inAttempt(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("around"), func(ctx context.Context, a *everonce.Attempt) {
				_, err = everonce.StepTx(ctx, a, x, "charge", w)
			})
			return err
		},
	} {
		for _, outside := range []bool{false, true} {
			testDoomed(t, fmt.Sprintf("%s, in its context %v", name, !outside), outside, around)
		}
	}
}

func testDoomed(t *testing.T, name string, outside bool, around func(s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		s := newMapStore()
		x, other := newTxReceiver(t, s, nil), newTxReceiver(t, s, nil)
		s.on("RollbackTo", 0, refuse(errNet)) // as where there are no savepoints
		calls := 0
		err := around(s, x, func(ctx context.Context, tx *mapTx) (int, error) {
			if outside {
				ctx = context.Background()
			}
			_, err := everonce.DoTx(ctx, tx, other, keyOf("inner"), within(tx, fail(errWork)))
			checkErr(t, err, everonce.ErrTxDoomed)
			doomOthers(t, 300)
			calls = len(s.calls)
			return 1, nil
		})
		checkErr(t, err, everonce.ErrTxDoomed)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
		for _, c := range s.calls[calls:] {
			if c.method != "Rollback" && c.method != "Release" {
				t.Errorf("after it came the call %s", c.method)
			}
		}
		checkEqual(t, "balance", s.row("balance"), 0)
		checkEqual(t, "record", s.record(keyOf("inner")), driver.Record{})
		s.checkIdle(t)
	})
}

// doomOthers dooms callers' transactions of another database.
func doomOthers(t *testing.T, n int) {
	t.Helper()
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("RollbackTo", 0, refuse(errNet))
	for range n {
		tx := s.begin()
		doTx(t, x, tx, keyOf("x"), within(tx, fail(errWork)), everonce.Failed, everonce.ErrTxDoomed)
		tx.Rollback()
	}
}

// A handle that outlives its transactions, as a session of MongoDB does, does not say which of them it is in: once
// one was doomed DoTx takes it no more, and the whole is run again with another.
func TestDoTxRefusesADoomedHandle(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("RollbackTo", 1, refuse(errNet))
	tx := s.begin()
	doTx(t, x, tx, keyOf("x"), within(tx, fail(errWork)), everonce.Failed, everonce.ErrTxDoomed)
	tx.Rollback()
	s.mu.Lock()
	s.beginIn(tx)
	s.mu.Unlock()
	doTx(t, x, tx, keyOf("x"), withinNever(t), everonce.Failed, everonce.ErrTxDoomed)
	tx.Rollback()
	again := s.begin()
	doTx(t, x, again, keyOf("x"), within(again, nil), everonce.Executed, nil)
	checkErr(t, again.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 30)
	s.checkIdle(t)
}

// The error says once why a transaction is doomed, even if the work passes on the error that said it.
func TestADoomedTransactionSaysWhyOnce(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("RollbackTo", 0, refuse(errNet))
	tx := s.begin()
	_, err := doTx(t, x, tx, keyOf("around"), func(ctx context.Context) (int, error) {
		res, err := everonce.DoTx(ctx, tx, x, keyOf("inner"), within(tx, fail(errWork)))
		return res.Value, err
	}, everonce.Failed, everonce.ErrTxDoomed)
	checkErr(t, err, errWork)
	checkEqual(t, "how often it says why", strings.Count(err.Error(), errNet.Error()), 1)
	tx.Rollback()
	s.checkIdle(t)
}
