package everonce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// An answer that comes when the lease is lost, or the caller has gone, does not call the work: another attempt may be at it, and
// what is called with a context that is over tells nobody what it has done. It proves that nothing took hold: the next delivery does it.
func TestReconcilerThatAnswersTooLate(t *testing.T) {
	late := func(s *faultStore) asks {
		return func(context.Context, everonce.Abandoned) (verdict, error) {
			s.on("Renew", 0, refuse(errNet))
			time.Sleep(time.Minute)
			return everonce.NotHappened[string](), nil
		}
	}
	released := func(t *testing.T, s *faultStore, why string) {
		t.Helper()
		rec := s.record(t, keyOf("x"))
		checkEqual(t, "State", rec.State, everonce.StateReleased)
		checkEqual(t, "LastError", rec.LastError, why)
	}
	start := func(t *testing.T) (*faultStore, *everonce.Receiver) {
		t.Helper()
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Lease: 3 * time.Second})
		leaveUnknown(t, r, keyOf("x"))
		return s, r
	}
	t.Run("the lease is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r := start(t)
			res, _ := do(t, r, keyOf("x"), never(t), everonce.Failed, everonce.ErrLeaseLost, everonce.WithReconcile(late(s)))
			checkEqual(t, "Attempt", res.Attempt, 0)
			released(t, s, "lease_lost")
			do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, askNever(t))
		})
	})
	t.Run("another has it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r := start(t)
			var wg sync.WaitGroup
			wg.Go(func() {
				res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithReconcile(late(s)))
				checkEqual(t, "value", res.Value, "of the second")
			})
			time.Sleep(10 * time.Second)
			do(t, r, keyOf("x"), returns("of the second", nil), everonce.Executed, nil, answer(everonce.NotHappened[string](), nil))
			wg.Wait()
		})
	})
	t.Run("the caller has gone", func(t *testing.T) {
		s, r := start(t)
		ctx, cancel := context.WithCancel(context.Background())
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
			cancel()
			return everonce.NotHappened[string](), nil
		}))
		checkOutcome(t, res, err, everonce.Failed, context.Canceled)
		checkEqual(t, "Outcome of the error", asError(t, err).Outcome, everonce.Failed)
		checkEqual(t, "Attempt", res.Attempt, 0)
		released(t, s, "canceled")
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, askNever(t))
	})
	// What did happen is recorded, whoever is still there, with what is kept of it.
	t.Run("it happened", func(t *testing.T) {
		s, r := start(t)
		ctx, cancel := context.WithCancel(context.Background())
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
			cancel()
			return everonce.Happened("found"), nil
		}), everonce.WithSummary(func(v string) []byte { return []byte("sum of " + v) }))
		checkOutcome(t, res, err, everonce.Executed, nil)
		checkEqual(t, "Summary", string(s.record(t, keyOf("x")).Result.Summary), "sum of found")
	})
}
