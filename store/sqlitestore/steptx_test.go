package sqlitestore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A step that the former version of a program ran outside of transactions was left open: its effect may
// have happened, and a transaction cannot tell.
func TestStepTxOverAnOpenStep(t *testing.T) {
	for policy, want := range map[everonce.Policy]int{everonce.Refuse: 100, everonce.Reexecute: 70} {
		t.Run(policy.String(), func(t *testing.T) {
			b := newBank(t, nil)
			r, err := everonce.NewReceiver(b.Store, policy, &everonce.Options{EffectsInSteps: true})
			if err != nil {
				t.Fatal(err)
			}
			outside := errors.New("the gateway did not answer")
			_, err = everonce.Do(t.Context(), r, order("7"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
				return everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 0, outside }, everonce.WithPolicy(everonce.Reexecute))
			})
			if !errors.Is(err, outside) {
				t.Fatalf("the step outside of transactions: %v", err)
			}
			met := false
			res, err := everonce.Do(t.Context(), r, order("7"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
				met = true
				if step := a.Steps()[0]; step.Name != "charge" || step.State != driver.StepOpen {
					t.Errorf("the step %q is %v, want charge, open", step.Name, step.State)
				}
				return everonce.StepTx(ctx, a, b.tr, "charge", charge(30))
			})
			switch {
			case !met:
				t.Errorf("the operation was not taken over: %v, %v", res.Outcome, err)
			case policy == everonce.Refuse && !errors.Is(err, everonce.ErrOutcomeUnknown):
				t.Errorf("%v, %v; want ErrOutcomeUnknown", res.Outcome, err)
			case policy == everonce.Reexecute && (err != nil || res.Value != 70):
				t.Errorf("%+v, %v; want it executed", res, err)
			}
			b.balance(want)
		})
	}
}
