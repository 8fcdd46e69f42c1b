package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// Every failure of a store is ErrStore, whatever the call makes of it, and also where the store does not say so.
func TestEveryFailureOfAStoreIsErrStore(t *testing.T) {
	short := everonce.Options{CompletionTimeout: time.Second, TxRetries: 1}
	lost := func(s *mapStore) { // and nothing can be found out
		s.on("Commit", 1, lose(errCommitLost))
		s.on("Begin", 2, refuse(errNet))
		s.on("Begin", 3, refuse(errNet))
	}
	for name, c := range map[string]struct {
		want error
		call func(t *testing.T, s *mapStore, r *everonce.Receiver, x *everonce.TxReceiver[*mapTx]) error
	}{
		"Do, the claim": {everonce.ErrStore, func(t *testing.T, s *mapStore, r *everonce.Receiver, _ *everonce.TxReceiver[*mapTx]) error {
			s.on("Claim", 0, refuse(errNet))
			_, err := everonce.Do(t.Context(), r, keyOf("x"), never(t))
			return err
		}},
		"Do, the completion": {everonce.ErrNotRecorded, func(t *testing.T, s *mapStore, r *everonce.Receiver, _ *everonce.TxReceiver[*mapTx]) error {
			s.on("Complete", 0, refuse(errNet))
			_, err := everonce.Do(t.Context(), r, keyOf("x"), returns("v", nil))
			return err
		}},
		"Step": {everonce.ErrNotRecorded, func(t *testing.T, s *mapStore, r *everonce.Receiver, _ *everonce.TxReceiver[*mapTx]) (err error) {
			inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err = everonce.Step(ctx, a, "s", func(context.Context) (int, error) { s.on("SaveStep", 0, refuse(errNet)); return 1, nil })
			})
			return err
		}},
		"Transact": {everonce.ErrOutcomeUnknown, func(t *testing.T, s *mapStore, _ *everonce.Receiver, x *everonce.TxReceiver[*mapTx]) error {
			lost(s)
			_, err := everonce.Transact(t.Context(), x, keyOf("x"), adds)
			return err
		}},
		"TransactBatch": {everonce.ErrOutcomeUnknown, func(t *testing.T, s *mapStore, _ *everonce.Receiver, x *everonce.TxReceiver[*mapTx]) error {
			lost(s)
			res, err := everonce.TransactBatch(t.Context(), x, items("a", "b"), func(context.Context, *mapTx, []int) ([]int, error) { return make([]int, 2), nil })
			checkErr(t, err, nil)
			return res[1].Err
		}},
		"InTx": {everonce.ErrOutcomeUnknown, func(t *testing.T, s *mapStore, _ *everonce.Receiver, x *everonce.TxReceiver[*mapTx]) error {
			s.on("Commit", 1, lose(errCommitLost))
			return x.InTx(t.Context(), func(context.Context, *mapTx) error { return nil })
		}},
		"DoTx": {everonce.ErrTxDoomed, func(t *testing.T, s *mapStore, _ *everonce.Receiver, x *everonce.TxReceiver[*mapTx]) (err error) {
			s.on("Savepoint", 1, refuse(errNet))
			_ = x.InTx(t.Context(), func(ctx context.Context, tx *mapTx) error {
				_, err = everonce.DoTx(ctx, tx, x, keyOf("x"), func(context.Context) (int, error) { return 1, nil })
				return err
			})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMapStore()
				err := c.call(t, s, newReceiver(t, s, everonce.Refuse, &short), newTxReceiver(t, s, &short))
				checkErr(t, err, c.want)
				checkErr(t, err, everonce.ErrStore)
				if !errors.Is(err, errNet) && !errors.Is(err, errCommitLost) {
					t.Errorf("what the store said is not in %v", err)
				}
			})
		})
	}
}
