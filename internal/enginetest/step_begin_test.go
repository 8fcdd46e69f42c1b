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

// The answer to a step's begin was lost, and the function was not called: the write is taken back, so that the next
// attempt does not find an unknown step.
func TestStepWhoseBeginWasLostIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
		s.on("SaveStep", 0, func(_ context.Context, call func() error) error {
			err := call()
			if reqs := requests[driver.SaveStepRequest](&s.faults, "SaveStep"); reqs[len(reqs)-1].Step.State == driver.StepOpen {
				return errNet
			}
			return err
		})
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "mail", stepNever(t))
			checkErr(t, err, everonce.ErrStore)
			checkErr(t, err, errNet)
		})
		step, ok := stepIn(t, s, keyOf("x"), "mail")
		checkEqual(t, "written", ok, true)
		checkEqual(t, "state", step.State, driver.StepNotDone)
		s.heal()
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "mail", stepReturns("sent", nil))
		}, everonce.Executed, nil)
	})
}

// A goroutine that the work has left behind begins no step any more: its effect would count for nothing.
func TestStepAfterTheWorkHasReturnedIsRefused(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	start, refused := make(chan struct{}), make(chan error)
	res, err := everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		go func() {
			<-start
			_, err := everonce.Step(context.WithoutCancel(ctx), a, "late", stepNever(t))
			refused <- err
		}()
		return "v", nil
	}, everonce.WithSummary(func(string) []byte { // called when the work has returned, and before the completion is written
		close(start)
		checkErr(t, <-refused, errAny)
		return nil
	}))
	checkOutcome(t, res, err, everonce.Executed, nil)
	select {
	case <-start:
	default:
		t.Error("the late step was never tried")
	}
}

// If the caller has gone, or another attempt may have the operation, that is not the store's failure, even if it
// made the transaction fail to begin.
func TestStepTxThatDoesNotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		lose bool
		want everonce.Outcome
		err  error
	}{
		"the caller is gone": {false, everonce.Failed, context.Canceled},
		"the lease is lost":  {true, everonce.LeaseLost, everonce.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &recorder{}
				s, r, x := newStepTx(t, &everonce.Options{Observer: rec, Lease: 12 * time.Second})
				if c.lose {
					s.on("Renew", 0, refuse(errNet))
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				_, _ = everonce.Do(ctx, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					if !c.lose {
						cancel()
					}
					<-ctx.Done()
					_, err := everonce.StepTx(ctx, a, x, "charge", txNever(t))
					checkErr(t, err, c.err)
					checkEqual(t, "the store's failure", errors.Is(err, everonce.ErrStore), false)
					return "", everonce.NotDone(err)
				})
				checkEqual(t, "Outcome", rec.take(t)[0].Outcome, c.want)
				s.checkIdle(t)
			})
		})
	}
}

// A step whose begin was answered behind the end of the lease is not run: another attempt may be at it. Nothing of
// it is open, and the next attempt goes on from there.
func TestStepIsNotBegunAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second, StoreTimeout: time.Hour})
		s.on("Renew", 0, refuse(errNet))
		s.on("SaveStep", 1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(time.Minute)
			return err
		})
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "s", stepNever(t))
			checkErr(t, err, everonce.ErrLeaseLost)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.LeaseLost)
			checkEqual(t, "Step", asError(t, err).Step, "s")
		})
		s.heal()
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "s", stepReturns("v", nil))
		}, everonce.Executed, nil)
	})
}

// An answer that comes at the very end of the lease comes too late, whichever the process hears of first: the
// answer, or its timer. In a bubble that is by chance.
func TestNothingIsBegunAtTheEndOfTheLease(t *testing.T) {
	const lease = 3 * time.Second
	for range 32 {
		synctest.Test(t, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: lease, StoreTimeout: time.Hour})
			s.on("Renew", 0, refuse(errNet))
			s.on("SaveStep", 1, func(_ context.Context, call func() error) error {
				err := call()
				time.Sleep(lease)
				return err
			})
			inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err := everonce.Step(ctx, a, "s", stepNever(t))
				checkErr(t, err, everonce.ErrLeaseLost)
				checkEqual(t, "Lost", a.Lost(), true)
				checkErr(t, context.Cause(ctx), everonce.ErrLeaseLost)
			})
		})
		synctest.Test(t, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{Lease: lease})
			leaveUnknown(t, r, keyOf("x"))
			s.on("Renew", 0, refuse(errNet))
			do(t, r, keyOf("x"), never(t), everonce.Failed, everonce.ErrLeaseLost, everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
				time.Sleep(lease)
				return everonce.NotHappened[string](), nil
			}))
		})
	}
}
