package enginetest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// An answer that comes when the lease is lost, or the caller has gone, does not call the work: another attempt may
// be running, and work called with an ended context would leave an unknown outcome. It proves that nothing took
// effect: the next delivery runs.
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
		checkEqual(t, "State", rec.State, driver.StateReleased)
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
	// An effect that happened is recorded, even if the caller has gone, with its summary.
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

// Reconciled is set if the reconciler's answer was recorded, and not for another attempt's answer.
func TestReconciledIsSetIfTheAnswerSettled(t *testing.T) {
	asked := func(t *testing.T, want everonce.Outcome, sentinel error, meanwhile func(*faultStore, *everonce.Receiver)) (everonce.Result[string], everonce.Observation) {
		t.Helper()
		rec := &recorder{}
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Observer: rec, CompletionTimeout: time.Second})
		leaveUnknown(t, r, keyOf("x"))
		ask := everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
			meanwhile(s, r)
			return everonce.Happened("found"), nil
		})
		rec.take(t)
		res, _ := do(t, r, keyOf("x"), never(t), want, sentinel, ask)
		events := rec.take(t)
		return res, events[len(events)-1]
	}
	t.Run("settled by another meanwhile", func(t *testing.T) {
		res, ev := asked(t, everonce.Replayed, nil, func(_ *faultStore, r *everonce.Receiver) {
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Value: "settled", Force: true}), nil)
		})
		checkEqual(t, "result", res, everonce.Result[string]{Value: "settled", Outcome: everonce.Replayed})
		checkEqual(t, "Observation.Reconciled", ev.Reconciled, false)
	})
	t.Run("not recorded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			res, ev := asked(t, everonce.NotRecorded, everonce.ErrNotRecorded, func(s *faultStore, _ *everonce.Receiver) { s.on("Complete", 0, refuse(errNet)) })
			checkEqual(t, "result", res, everonce.Result[string]{Value: "found", Outcome: everonce.NotRecorded, Attempt: 2, Reconciled: true})
			checkEqual(t, "Observation.Reconciled", ev.Reconciled, false)
		})
	})
}

func TestReconciledIsSetForARecordedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Observer: rec, CompletionTimeout: time.Second})
		step := func(want error) {
			t.Helper()
			inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err := everonce.Step(ctx, a, "s", stepReturns("", errWork), everonce.WithPolicy(everonce.Reconcile), answer(everonce.Happened("found"), nil))
				checkErr(t, err, want)
			})
		}
		step(errWork)
		rec.take(t)
		s.on("SaveStep", 0, refuse(errNet))
		step(everonce.ErrNotRecorded)
		checkEqual(t, "Reconciled", rec.take(t)[0].Reconciled, false)
	})
}

// Work that did not run has not left out a step.
func TestReconciledAsksForNoSteps(t *testing.T) {
	rec := &recorder{}
	r := newReceiver(t, newFaultStore(), everonce.Reconcile, &everonce.Options{Observer: rec})
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "mail", stepReturns("sent", nil), everonce.WithPolicy(everonce.Refuse))
		checkErr(t, err, nil)
		return "", errWork
	}, everonce.Unknown, errWork, askNever(t))
	rec.take(t)
	do(t, r, keyOf("x"), never(t), everonce.Executed, nil, answer(everonce.Happened("found"), nil))
	ev := rec.only(t)
	checkEqual(t, "UnusedSteps", len(ev.UnusedSteps), 0)
	checkEqual(t, "Reconciled", ev.Reconciled, true)
}
