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

type (
	verdict = everonce.Verdict[string]
	asks    = func(context.Context, everonce.Abandoned) (verdict, error)
)

// leaveUnknown makes an attempt that ends in the unknown.
func leaveUnknown(t testing.TB, r *everonce.Receiver, key everonce.Key) {
	t.Helper()
	do(t, r, key, returns("", errWork), everonce.Unknown, errWork, askNever(t))
}

func TestReconcile(t *testing.T) {
	const value, runs, unknown = "value", "runs", "unknown"
	for name, c := range map[string]struct {
		ask   asks
		then  string
		cause error
	}{
		"happened":     {func(context.Context, everonce.Abandoned) (verdict, error) { return everonce.Happened("found"), nil }, value, nil},
		"not happened": {func(context.Context, everonce.Abandoned) (verdict, error) { return everonce.NotHappened[string](), nil }, runs, nil},
		"still unknown": {func(context.Context, everonce.Abandoned) (verdict, error) {
			return everonce.StillUnknown[string](), nil
		}, unknown, errAny},
		"zero verdict":    {func(context.Context, everonce.Abandoned) (v verdict, _ error) { return v, nil }, unknown, errAny},
		"error":           {func(context.Context, everonce.Abandoned) (v verdict, _ error) { return v, errNet }, unknown, errNet},
		"error and value": {func(context.Context, everonce.Abandoned) (verdict, error) { return everonce.Happened("found"), errNet }, unknown, errNet},
		"error and not": {func(context.Context, everonce.Abandoned) (verdict, error) {
			return everonce.NotHappened[string](), errNet
		}, unknown, errNet},
		"a mark is no verdict": {func(context.Context, everonce.Abandoned) (v verdict, _ error) {
			return v, everonce.NotDone(errNet)
		}, unknown, errNet},
	} {
		t.Run("operation/"+name, func(t *testing.T) {
			s := memstore.New(nil)
			rec := &recorder{}
			r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Observer: rec})
			leaveUnknown(t, r, keyOf("x"))
			rec.take(t)
			ask := everonce.WithReconcile(c.ask)
			switch c.then {
			case value:
				res, _ := do(t, r, keyOf("x"), never(t), everonce.Executed, nil, ask)
				checkEqual(t, "result", res, everonce.Result[string]{Value: "found", Outcome: everonce.Executed, Attempt: 2, Reconciled: true})
				checkEqual(t, "Observation.Reconciled", rec.only(t).Reconciled, true)
				res, _ = do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, askNever(t))
				checkEqual(t, "replay", res.Value, "found")
			case runs:
				res, _ := do(t, r, keyOf("x"), returns("second", nil), everonce.Executed, nil, ask)
				checkEqual(t, "result", res, everonce.Result[string]{Value: "second", Outcome: everonce.Executed, Attempt: 2})
				checkEqual(t, "Observation.Reconciled", rec.only(t).Reconciled, false)
			case unknown:
				for n := range 2 { // it stays so, and is asked again
					res, err := do(t, r, keyOf("x"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown, ask)
					checkErr(t, asError(t, err).Cause, c.cause)
					checkEqual(t, "Attempt", res.Attempt, n+2)
					got := recordIn(t, s, keyOf("x"))
					checkEqual(t, "state", got.State, driver.StateAbandoned)
					checkEqual(t, "expires", got.PurgeAt, time.Time{})
				}
			}
		})
		t.Run("step/"+name, func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, everonce.Reexecute, nil)
			opts := []everonce.CallOption{everonce.WithPolicy(everonce.Reconcile), everonce.WithReconcile(c.ask)}
			step := func(f stepWork) (v string, err error, doErr error) { //nolint:revive,staticcheck // two errors
				_, doErr = everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					v, err = everonce.Step(ctx, a, "s", f, opts...)
					return v, err
				})
				return v, err, doErr
			}
			_, err, _ := step(stepReturns("", errWork))
			checkErr(t, err, errWork)
			switch c.then {
			case value:
				v, err, doErr := step(stepNever(t))
				checkErr(t, errors.Join(err, doErr), nil)
				checkEqual(t, "value", v, "found")
				saved, _ := stepIn(t, s, keyOf("x"), "s")
				checkEqual(t, "saved", saved.State, driver.StepDone)
			case runs:
				v, err, doErr := step(stepReturns("second", nil))
				checkErr(t, errors.Join(err, doErr), nil)
				checkEqual(t, "value", v, "second")
			case unknown:
				for range 2 { // it stays so, and is asked again
					_, err, doErr := step(stepNever(t))
					checkErr(t, err, everonce.ErrOutcomeUnknown)
					checkErr(t, asError(t, err).Cause, c.cause)
					checkErr(t, doErr, everonce.ErrOutcomeUnknown)
					checkEqual(t, "Step", asError(t, doErr).Step, "s")
					got := recordIn(t, s, keyOf("x"))
					checkEqual(t, "state", got.State, driver.StateAbandoned)
					checkEqual(t, "UnknownStep, which would need a settlement", got.UnknownStep, "")
					checkEqual(t, "expires", got.PurgeAt, time.Time{})
				}
			}
		})
	}
}

func TestReconcilerGetsTheAbandonedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Owner: "host:1", Lease: time.Minute})
		key := keyOf("x")
		since := time.Now()
		leaveUnknown(t, r, key)
		var downstream string
		ask := everonce.WithReconcile(func(ctx context.Context, a everonce.Abandoned) (verdict, error) {
			downstream = a.Downstream("charge")
			a.Downstream = nil
			if !a.Since.Equal(since) {
				t.Errorf("Since %v, want %v", a.Since, since)
			}
			a.Since = time.Time{}
			checkEqual(t, "the reconciler got", a, everonce.Abandoned{Key: key, Attempt: 1, Owner: "host:1", LastError: "error"})
			if at, ok := everonce.AttemptFrom(ctx); !ok || at.Number() != 2 {
				t.Error("it does not run as a separate attempt")
			}
			return everonce.NotHappened[string](), nil
		})
		time.Sleep(time.Hour)
		do(t, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
			checkEqual(t, "the downstream key", downstream, a.DownstreamKey("charge"))
			return "", everonce.Permanent("over", nil, nil)
		}, everonce.Rejected, errAny, ask)

		diedIn(t, s, keyOf("died"), time.Second)
		time.Sleep(time.Hour)
		do(t, r, keyOf("died"), returns("v", nil), everonce.Executed, nil,
			everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (verdict, error) {
				checkEqual(t, "Owner", a.Owner, "dead:1")
				checkEqual(t, "LastError", a.LastError, "")
				return everonce.NotHappened[string](), nil
			}))
	})
}

// A step that a still earlier attempt left open: the reconciler gets its number.
func TestReconcilerOfAnOlderStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Reexecute, nil)
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			time.Sleep(time.Millisecond) // so that the times differ
			_, err := everonce.Step(ctx, a, "s", stepReturns("", errWork))
			checkErr(t, err, errWork)
		})
		step, _ := stepIn(t, s, keyOf("x"), "s")
		began := step.BeganAt
		inAttempt(t, r, keyOf("x"), func(context.Context, *everonce.Attempt) {}) // it does not come so far
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "s", stepNever(t), everonce.WithPolicy(everonce.Reconcile),
				everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (verdict, error) {
					checkEqual(t, "Attempt", a.Attempt, 1)
					checkEqual(t, "Step", a.Step, "s")
					checkEqual(t, "Since: the step's begin, and not the operation's", a.Since, began)
					return everonce.Happened("found"), nil
				}))
			checkErr(t, err, nil)
		})
	})
}

// The reconciler runs with a lease that is renewed, and its context ends with the caller's.
func TestReconcilerIsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Lease: 3 * time.Second})
		leaveUnknown(t, r, keyOf("x"))
		do(t, r, keyOf("x"), never(t), everonce.Executed, nil,
			everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
				time.Sleep(time.Minute)
				do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, askNever(t))
				return everonce.Happened("found"), nil
			}))
		if n := s.count("Renew"); n < 50 {
			t.Errorf("%d renewals in a minute of asking", n)
		}
		leaveUnknown(t, r, keyOf("y"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := everonce.Do(ctx, r, keyOf("y"), never(t), everonce.WithReconcile(func(ctx context.Context, _ everonce.Abandoned) (v verdict, _ error) {
			<-ctx.Done()
			return v, ctx.Err()
		}))
		checkErr(t, err, everonce.ErrOutcomeUnknown)
		checkErr(t, err, context.DeadlineExceeded)
		checkEqual(t, "class", s.record(t, keyOf("y")).LastError, "deadline")
	})
}

func TestReconcilerThatPanics(t *testing.T) {
	for _, inSteps := range []bool{false, true} {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Reconcile, nil)
		leaveUnknown(t, r, keyOf("x"))
		opts := []everonce.CallOption{everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) { panic("boom") })}
		if inSteps {
			opts = append(opts, everonce.EffectsInSteps())
		}
		func() {
			defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
			_, _ = everonce.Do(context.Background(), r, keyOf("x"), never(t), opts...)
		}()
		rec := recordIn(t, s, keyOf("x"))
		checkEqual(t, "state", rec.State, driver.StateAbandoned)
		checkEqual(t, "class", rec.LastError, "panic")
	}
}

// It is the question that settles nothing when it panics, not the work after it.
func TestWorkThatPanicsAfterAnAnswer(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{EffectsInSteps: true})
	diedIn(t, s, keyOf("x"), time.Nanosecond)
	func() {
		defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
		_, _ = everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) { panic("boom") },
			answer(everonce.NotHappened[string](), nil))
	}()
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateReleased)
}

// The mode without a question, or with one of another type, is refused before the claim.
func TestReconcileNeedsItsQuestion(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reconcile, nil)
	intAsk := everonce.WithReconcile(func(context.Context, everonce.Abandoned) (v everonce.Verdict[int], _ error) { return v, nil })
	do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument)
	do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, intAsk)
	do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, everonce.WithReconcile[string](nil))
	checkEqual(t, "calls of the store", len(s.calls), 0)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "none", stepNever(t)) // the operation's policy needs a question here too
		checkErr(t, err, everonce.ErrInvalidArgument)
		_, err = everonce.Step(ctx, a, "type", stepNever(t), intAsk)
		checkErr(t, err, everonce.ErrInvalidArgument)
		_, err = everonce.Step(ctx, a, "policy", stepReturns("", nil), everonce.WithPolicy(everonce.Refuse))
		checkErr(t, err, nil)
	}, askNever(t))
}

// A step that is still unknown is asked about again by the next attempt, if there will be one; if the operation's
// policy is Refuse, the step must be settled.
func TestStepThatStaysUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		parent everonce.Policy
		opts   []everonce.CallOption
		again  bool
	}{
		"reexecute":        {everonce.Reexecute, nil, true},
		"refuse":           {everonce.Refuse, nil, false},
		"refuse, in steps": {everonce.Refuse, []everonce.CallOption{everonce.EffectsInSteps()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, c.parent, nil)
			var verdict verdict
			attempt := func(want everonce.Outcome, wantErr error) {
				t.Helper()
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					return everonce.Step(ctx, a, "s", stepReturns("", everonce.NotDone(errWork)), everonce.WithPolicy(everonce.Reconcile), answer(verdict, nil))
				}, want, wantErr, c.opts...)
			}
			inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err := everonce.Step(ctx, a, "s", stepReturns("", errWork))
				checkErr(t, err, errWork)
			})
			attempt(everonce.Unknown, everonce.ErrOutcomeUnknown)
			verdict = everonce.Happened("found")
			if c.again {
				attempt(everonce.Executed, nil)
				return
			}
			checkEqual(t, "UnknownStep", recordIn(t, s, keyOf("x")).UnknownStep, "s")
			attempt(everonce.Unknown, everonce.ErrOutcomeUnknown)
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "s", Value: "settled"}), nil)
			attempt(everonce.Executed, nil)
		})
	}
}
