package everonce_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// What stands for the steps of an attempt that has none is one for all attempts of the process: they would wait for each other.
func TestAttemptsWithoutStepsShareNoLock(t *testing.T) {
	for name, c := range map[string]struct {
		do   work
		want everonce.Outcome
	}{
		"done":     {returns("v", nil), everonce.Executed},
		"refused":  {returns("", everonce.Permanent("no", nil, nil)), everonce.Rejected},
		"not done": {returns("", everonce.NotDone(errWork)), everonce.Failed},
		"unknown":  {returns("", errWork), everonce.Unknown},
		"panic":    {func(context.Context, *everonce.Attempt) (string, error) { panic("x") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inSteps := range []bool{false, true} {
				want := c.want
				if want == everonce.Unknown && inSteps {
					want = everonce.Failed // no step is open
				}
				r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{EffectsInSteps: inSteps, Observer: new(recorder)})
				release := everonce.HoldNoSteps()
				got := make(chan everonce.Outcome, 1)
				go func() {
					var res everonce.Result[string]
					defer func() { _ = recover(); got <- res.Outcome }()
					res, _ = everonce.Do(t.Context(), r, keyOf("x"), c.do)
				}()
				select {
				case o := <-got:
					checkEqual(t, "outcome", o, want)
					release()
				case <-time.After(10 * time.Second):
					t.Error("it waits for the lock")
					release()
					<-got
				}
			}
		})
	}
}

// A step that comes after the end is told so, though its attempt had none.
func TestStepOfAnAttemptThatHadNoneAndHasEnded(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	var a *everonce.Attempt
	do(t, r, keyOf("x"), func(_ context.Context, at *everonce.Attempt) (string, error) { a = at; return "", nil }, everonce.Executed, nil)
	if _, err := everonce.Step(t.Context(), a, "late", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil }); !errors.Is(err, everonce.ErrAttemptEnded) {
		t.Errorf("got %v, want ErrAttemptEnded", err)
	}
}
