package enginetest

import (
	"context"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A step that an earlier attempt has finished is not open: an error behind it, with all effects in steps, leaves
// nothing half done.
func TestFinishedStepsAreNotOpen(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	for range 2 {
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			_, err := everonce.Step(ctx, a, "charge", stepReturns("receipt", nil))
			checkErr(t, err, nil)
			return "", errWork
		}, everonce.Failed, errWork)
		checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateReleased)
	}
}

// A step that an earlier attempt left open stays open, whatever other steps this one begins and ends: an error then
// proves nothing.
func TestAnotherStepClosesNone(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{EffectsInSteps: true})
	asked := answer(everonce.NotHappened[string](), nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "charge", stepReturns("", errWork), asked)
	}, everonce.Unknown, errWork, asked)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		for _, name := range []string{"mail", "webhook"} {
			_, err := everonce.Step(ctx, a, name, stepReturns("sent", nil), asked)
			checkErr(t, err, nil)
		}
		return "", errWork // before it came to the charge
	}, everonce.Unknown, errWork, asked)
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateAbandoned)
}

// Under Reexecute an open step need not be settled first: the next attempt reaches it and applies its policy.
func TestOpenStepOfAnOperationThatRunsAgain(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{EffectsInSteps: true})
	refusing := everonce.WithPolicy(everonce.Refuse)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "charge", stepReturns("", errWork), refusing)
	}, everonce.Failed, errWork)
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateReleased)
	_, err := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "charge", stepNever(t), refusing)
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	checkEqual(t, "Step", asError(t, err).Step, "charge")
}

// A panic inside a step leaves it open: the operation is unknown, also where no step has to be settled.
func TestPanicInAStepIsUnknown(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reconcile, &everonce.Options{EffectsInSteps: true})
	ask := answer(everonce.StillUnknown[string](), nil)
	func() {
		defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
		_, _ = everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "charge", func(context.Context) (string, error) { panic("boom") }, ask)
		}, ask)
	}()
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateAbandoned)
}

// Of two steps that are unknown the one is named that somebody has to settle, in whatever order they come.
func TestStepThatMustBeSettledIsNamed(t *testing.T) {
	for _, order := range [][]string{{"asked", "refused"}, {"refused", "asked"}} {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Reexecute, nil)
		opts := map[string][]everonce.CallOption{
			"asked":   {everonce.WithPolicy(everonce.Reconcile), answer(everonce.StillUnknown[string](), nil)},
			"refused": {everonce.WithPolicy(everonce.Refuse)},
		}
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			for _, name := range order {
				_, err := everonce.Step(ctx, a, name, stepReturns("", errWork), opts[name]...)
				checkErr(t, err, errWork)
			}
		})
		_, err := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			for _, name := range order {
				_, err := everonce.Step(ctx, a, name, stepNever(t), opts[name]...)
				checkErr(t, err, everonce.ErrOutcomeUnknown)
			}
			return "", nil
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "Step", asError(t, err).Step, "refused")
		checkEqual(t, "UnknownStep", recordIn(t, s, keyOf("x")).UnknownStep, "refused")
	}
}

// Changing the returned list of steps does not change the attempt's own.
func TestStepsAreTheCallersOwn(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "charge", stepReturns("", errWork))
		checkErr(t, err, errWork)
	})
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		a.Steps()[0].State = driver.StepNotDone
		return everonce.Step(ctx, a, "charge", stepNever(t))
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
}

// An attempt that has ended begins no step, however it ended: nothing is written.
func TestStepAfterTheAttemptHasUnwound(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reconcile, nil)
	leaveUnknown(t, r, keyOf("asked"))
	var ended []*everonce.Attempt
	keep := func(ctx context.Context) {
		a, _ := everonce.AttemptFrom(ctx)
		ended = append(ended, a)
	}
	do(t, r, keyOf("asked"), never(t), everonce.Executed, nil, everonce.WithReconcile(func(ctx context.Context, _ everonce.Abandoned) (verdict, error) {
		keep(ctx)
		return everonce.Happened("found"), nil
	}))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
		_, _ = everonce.Do(context.Background(), r, keyOf("panics"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			keep(ctx)
			panic("boom")
		}, askNever(t))
	})
	wg.Wait()
	for _, a := range ended {
		_, err := everonce.Step(context.Background(), a, "late", stepNever(t), everonce.WithPolicy(everonce.Refuse))
		checkErr(t, err, everonce.ErrAttemptEnded)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Invalid)
	}
	checkEqual(t, "attempts", len(ended), 2)
	checkEqual(t, "writes", s.count("SaveStep"), 0)
}
