package everonce_test

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
)

// A step is told as it ended: what was not kept of it, a refusal whose detail was too large, and a panic in one that runs again.
func TestObserverIsToldOfStepsThatAreCut(t *testing.T) {
	rec := &recorder{}
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Observer: rec, MaxResult: 10})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "long", stepReturns("more than ten bytes", nil))
		checkErr(t, err, nil)
		s.on("SaveStep", 4, refuse(everonce.ErrTooLarge))
		_, err = everonce.Step(ctx, a, "refused", stepReturns("", everonce.Permanent("declined", nil, []byte("detail"))))
		checkEqual(t, "Truncated", asPermanent(t, err).Truncated, true)
		func() {
			defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
			_, _ = everonce.Step(ctx, a, "panics", func(context.Context) (string, error) { panic("boom") })
		}()
	})
	events := rec.take(t)
	checkEqual(t, "Elided", events[0].Elided, "size")
	checkEqual(t, "outcome of the refusal", events[1].Outcome, everonce.Rejected)
	checkEqual(t, "outcome of the panic", events[2].Outcome, everonce.Failed)
}
