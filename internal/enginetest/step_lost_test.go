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

func TestStepAfterTheAttempt(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for _, used := range []bool{false, true} {
		var a *everonce.Attempt
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, attempt *everonce.Attempt) {
			a = attempt
			if used {
				_, err := everonce.Step(ctx, a, "s", stepReturns("", nil))
				checkErr(t, err, nil)
			}
		})
		_, err := everonce.Step(context.Background(), a, "late", stepNever(t))
		checkErr(t, err, everonce.ErrAttemptEnded)
	}
}

func TestStepResultsThatCanNotBeKept(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{MaxResult: 10})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		v, err := everonce.Step(ctx, a, "size", stepReturns("more than ten bytes", nil))
		checkErr(t, err, nil)
		checkEqual(t, "value", v, "more than ten bytes")
		s.on("SaveStep", 4, refuse(driver.ErrTooLarge))
		v, err = everonce.Step(ctx, a, "store", stepReturns("v", nil))
		checkErr(t, err, nil)
		checkEqual(t, "value", v, "v")
	})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		for _, name := range []string{"size", "store"} {
			_, err := everonce.Step(ctx, a, name, stepNever(t))
			checkErr(t, err, everonce.ErrResultElided)
			v, err := everonce.Step(ctx, a, name+"2", func(context.Context) (int, error) { return 5, nil })
			checkErr(t, err, nil)
			checkEqual(t, "value", v, 5)
		}
		_, err := everonce.Step(ctx, a, "undecodable", stepReturns("v", nil))
		checkErr(t, err, nil)
	})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "undecodable", func(context.Context) (int, error) { return 0, errors.New("must not run") })
		checkErr(t, err, everonce.ErrUndecodable)
	})
}

func TestStepThatWasNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
		s.on("SaveStep", 0, refuse(errNet))
		s.on("SaveStep", 1, func(_ context.Context, call func() error) error { return call() })
		_, err := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			v, err := everonce.Step(ctx, a, "s", stepReturns("v", nil))
			checkErr(t, err, everonce.ErrNotRecorded)
			checkErr(t, err, errNet)
			checkEqual(t, "the value comes with it", v, "v")
			return "", err
		}, everonce.Unknown, everonce.ErrOutcomeUnknown) // it is open
		checkEqual(t, "Step", asError(t, err).Step, "s")
	})
}

func TestStepOfALostAttempt(t *testing.T) {
	for name, after := range map[string]int{"before it begins": 1, "before it ends": 2} {
		t.Run(name, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Reexecute, nil)
			do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				s.on("SaveStep", after, func(_ context.Context, call func() error) error {
					diedIn(t, s.under, keyOf("x"), time.Hour, func(req *driver.ClaimRequest) { req.Take = driver.TakeForced })
					return call()
				})
				ran := false
				_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) {
					ran = true
					return "", nil
				})
				checkErr(t, err, everonce.ErrLeaseLost)
				checkEqual(t, "outcome", asError(t, err).Outcome, everonce.LeaseLost)
				checkEqual(t, "it ran", ran, after == 2)
				return "", err
			}, everonce.LeaseLost, everonce.ErrLeaseLost)
		})
	}
}

// A step's failure that cannot be recorded is returned together with the store's error, and the step is open.
func TestFailureOfAStepThatWasNotRecorded(t *testing.T) {
	for name, stepErr := range map[string]error{"NotDone": everonce.NotDone(errWork), "Permanent": everonce.Permanent("declined", errWork, nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				rec := &recorder{}
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
				s.on("SaveStep", 0, refuse(errNet))
				s.on("SaveStep", 1, func(_ context.Context, call func() error) error { return call() })
				inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("", stepErr))
					checkErr(t, err, everonce.ErrStore)
					checkErr(t, err, errNet)
					checkEqual(t, "it says that the effect happened", errors.Is(err, everonce.ErrNotRecorded), false)
					if name == "NotDone" {
						checkErr(t, err, errWork)
					} else {
						checkEqual(t, "code", asPermanent(t, err).Code, "declined")
					}
				})
				checkEqual(t, "Outcome", rec.take(t)[0].Outcome, everonce.NotRecorded)
				s.heal()
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					return everonce.Step(ctx, a, "s", stepNever(t))
				}, everonce.Unknown, everonce.ErrOutcomeUnknown)
			})
		})
	}
}

// A lease that ends while somebody is asked whether a step has happened ends the step with it: its function is not
// called.
func TestStepWhoseQuestionOutlivesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, nil)
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "s", stepReturns("", errWork), everonce.WithPolicy(everonce.Refuse))
		}, everonce.Failed, errWork)
		s.on("Renew", 0, refuse(errNet))
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "s", stepNever(t), everonce.WithPolicy(everonce.Reconcile),
				everonce.WithReconcile(func(ctx context.Context, _ everonce.Abandoned) (everonce.Verdict[string], error) {
					<-ctx.Done()
					return everonce.NotHappened[string](), nil
				}))
			checkErr(t, err, everonce.ErrLeaseLost)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.LeaseLost)
		})
	})
}
