package enginetest

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// unreadSteps are steps as no version has written them.
var unreadSteps = map[string]driver.StepRecord{
	"in no state":                       {State: 77},
	"done, with a result of no kind":    {State: driver.StepDone},
	"done, with a result of a new kind": {State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultElided + 1}},
	"not done, with a result":           {State: driver.StepNotDone, Result: driver.SavedResult{Kind: driver.ResultElided}},
	"open, with a result":               {State: driver.StepOpen, Result: driver.SavedResult{Kind: driver.ResultElided}},
}

// A step that cannot be read is unknown, whatever its policy, until it is settled: it cannot be known whether it
// took effect.
func TestAStepThatCanNotBeReadIsUnknown(t *testing.T) {
	for name, unread := range unreadSteps {
		t.Run(name, func(t *testing.T) { testUnreadStep(t, unread) })
	}
}

func testUnreadStep(t *testing.T, unread driver.StepRecord) {
	unread.Name, unread.Attempt = "charge", 1
	for name, step := range map[string]func(ctx context.Context, a *everonce.Attempt, x *everonce.TxReceiver[*mapTx]) error{
		"Step": func(ctx context.Context, a *everonce.Attempt, _ *everonce.TxReceiver[*mapTx]) error {
			_, err := everonce.Step(ctx, a, "charge", stepNever(t))
			return err
		},
		"StepTx": func(ctx context.Context, a *everonce.Attempt, x *everonce.TxReceiver[*mapTx]) error {
			_, err := everonce.StepTx(ctx, a, x, "charge", txNever(t))
			return err
		},
		"not asked for": func(context.Context, *everonce.Attempt, *everonce.TxReceiver[*mapTx]) error { return errWork },
	} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			r, x := newReceiver(t, s, everonce.Reexecute, nil), newTxReceiver(t, s, nil)
			if name == "not asked for" { // what is left of it is in doubt, though all effects are in steps
				r = newReceiver(t, s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
			}
			inAttempt(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) {
				rec := s.record(keyOf("x"))
				_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: unread})
				checkErr(t, err, nil)
			})
			_, err := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) { return "", step(ctx, a, x) }, everonce.Unknown, everonce.ErrOutcomeUnknown)
			rec := s.record(keyOf("x"))
			checkEqual(t, "State", rec.State, driver.StateAbandoned)
			if name == "not asked for" {
				return
			}
			checkErr(t, err, driver.ErrCorruptRecord)
			checkEqual(t, "UnknownStep", rec.UnknownStep, "charge")
			checkErr(t, r.Settle(t.Context(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "charge", Value: 30}), nil)
			rec = s.record(keyOf("x"))
			checkEqual(t, "State", rec.State, driver.StateReleased)
			checkEqual(t, "the step's state", rec.Steps[0].State, driver.StepDone)
			checkEqual(t, "the step's result", string(rec.Steps[0].Result.Data), "30")
		})
	}
}
