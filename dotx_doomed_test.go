package everonce_test

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
)

// What a DoTx could not undo is not committed by what stands around it, whatever its work makes of the error, and whichever
// receiver met it (rule 17).
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
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			x, other := newTxReceiver(t, s, nil), newTxReceiver(t, s, nil)
			s.on("RollbackTo", 0, refuse(errNet)) // as where there are no savepoints
			calls := 0
			err := around(s, x, func(ctx context.Context, tx *mapTx) (int, error) {
				_, err := everonce.DoTx(ctx, tx, other, keyOf("inner"), within(tx, fail(errWork)))
				checkErr(t, err, everonce.ErrTxDoomed)
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
			checkEqual(t, "record", s.record(keyOf("inner")), everonce.Record{})
			s.checkIdle(t)
		})
	}
}
