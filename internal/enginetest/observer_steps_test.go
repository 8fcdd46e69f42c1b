package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A step's event tells what became of the step, its first time and again.
func TestObserverGetsTheEndOfSteps(t *testing.T) {
	for name, c := range map[string]struct {
		err          error
		policy       everonce.Policy
		first, again everonce.Outcome
	}{
		"done":               {nil, everonce.Refuse, everonce.Executed, everonce.Replayed},
		"refused for good":   {everonce.Permanent("declined", nil, nil), everonce.Refuse, everonce.Rejected, everonce.Rejected},
		"not done":           {everonce.NotDone(errWork), everonce.Refuse, everonce.Failed, everonce.Failed},
		"unknown":            {errWork, everonce.Refuse, everonce.Unknown, everonce.Unknown},
		"unknown, run again": {errWork, everonce.Reexecute, everonce.Failed, everonce.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			r := newReceiver(t, memstore.New(nil), everonce.Reexecute, &everonce.Options{Observer: rec})
			for n, want := range []everonce.Outcome{c.first, c.again} {
				_, _ = everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("", c.err), everonce.WithPolicy(c.policy))
					if (err == nil) != (c.err == nil) {
						t.Errorf("error %v", err)
					}
					return "", everonce.NotDone(errWork)
				})
				ev := rec.take(t)[0]
				checkEqual(t, "Outcome", ev.Outcome, want)
				checkEqual(t, "Attempt", ev.Attempt, n+1)
				if (ev.Err == nil) != (c.err == nil) {
					t.Errorf("the event's error is %v", ev.Err)
				}
			}
		})
	}
}

func TestObserverGetsStepsThatTheStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		write int // the write that fails, with all after it
		do    behaviour
		want  everonce.Outcome
	}{
		"begin fails":      {1, refuse(errNet), everonce.StoreFailed},
		"begin comes late": {1, refuse(everonce.ErrLeaseLost), everonce.LeaseLost},
		"end fails":        {2, refuse(errNet), everonce.NotRecorded},
		"end comes late":   {2, refuse(everonce.ErrLeaseLost), everonce.LeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				rec := &recorder{}
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
				s.on("SaveStep", 0, c.do)
				if c.write == 2 {
					s.on("SaveStep", 1, func(_ context.Context, call func() error) error { return call() })
				}
				inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("v", nil))
					checkEqual(t, "the error's outcome", asError(t, err).Outcome, c.want)
				})
				checkEqual(t, "Outcome", rec.take(t)[0].Outcome, c.want)
			})
		})
	}
}

// A step is decoded by the codec that it was called with.
func TestStepIsReplayedByItsOwnCodec(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for range 2 {
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			v, err := everonce.Step(ctx, a, "s", stepReturns("v", nil), everonce.WithCodec(brittle{}))
			checkErr(t, err, nil)
			checkEqual(t, "value", v, "v")
		})
	}
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) { return "", errors.New("must not run") })
		checkErr(t, err, everonce.ErrUndecodable)
	})
}

func TestObserverGetsAStepsDurationAndElision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		rec := &recorder{}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
		s.on("SaveStep", 2, refuse(driver.ErrTooLarge))
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) {
				time.Sleep(3 * time.Second)
				return "v", nil
			})
			checkErr(t, err, nil)
		})
		ev := rec.take(t)[0]
		checkEqual(t, "Duration", ev.Duration, 3*time.Second)
		checkEqual(t, "Elided", ev.Elided, "store")
	})
}

// The observation says that a step's effect was found by reconciling, as for an operation.
func TestObserverGetsAReconciledStep(t *testing.T) {
	rec := &recorder{}
	r := newReceiver(t, memstore.New(nil), everonce.Reexecute, &everonce.Options{Observer: rec})
	for _, reconciled := range []bool{false, true, false} { // unknown, asked, replayed
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, _ = everonce.Step(ctx, a, "s", stepReturns("", errWork), everonce.WithPolicy(everonce.Reconcile), answer(everonce.Happened("found"), nil))
		})
		events := rec.take(t)
		checkEqual(t, "of the step", events[0].Reconciled, reconciled)
		checkEqual(t, "of the operation", events[1].Reconciled, false)
	}
}
