package enginetest

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// chargesThenMails is work that has one effect outside of steps, and whose step "mail" is left open.
func chargesThenMails(t testing.TB, charges *int) work {
	return func(ctx context.Context, a *everonce.Attempt) (string, error) {
		*charges++
		v, err := everonce.Step(ctx, a, "mail", stepReturns("", errWork), everonce.WithPolicy(everonce.Refuse))
		checkErr(t, err, errWork)
		return v, err
	}
}

// Settling a step says nothing about what the operation did outside of it.
func TestSettlingAStepLeavesAnUnknownOperation(t *testing.T) {
	for name, settlement := range map[string]everonce.Settlement{
		"done":     {Verdict: everonce.SettleDone, Step: "mail", Value: "sent"},
		"not done": {Verdict: everonce.SettleNotDone, Step: "mail"},
	} {
		t.Run("Refuse/"+name, func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, everonce.Refuse, nil)
			charges := 0
			w := chargesThenMails(t, &charges)
			do(t, r, keyOf("x"), w, everonce.Unknown, errWork)
			checkErr(t, r.Settle(context.Background(), keyOf("x"), settlement), nil)
			rec := recordIn(t, s, keyOf("x"))
			checkEqual(t, "state", rec.State, driver.StateAbandoned)
			checkEqual(t, "UnknownStep", rec.UnknownStep, "")
			if step, ok := rec.Step("mail"); !ok || step.State == driver.StepOpen {
				t.Errorf("the step is %v, found %v: it was not settled", step.State, ok)
			}
			do(t, r, keyOf("x"), w, everonce.Unknown, everonce.ErrOutcomeUnknown)
			checkEqual(t, "charges", charges, 1)

			// Once the operation is settled too, it goes on.
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
			do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		})
		t.Run("Reconcile/"+name, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Reconcile, nil)
			charges, asked := 0, 0
			w := chargesThenMails(t, &charges)
			do(t, r, keyOf("x"), w, everonce.Unknown, errWork, askNever(t))
			checkErr(t, r.Settle(context.Background(), keyOf("x"), settlement), nil)
			res, _ := do(t, r, keyOf("x"), w, everonce.Executed, nil, everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (verdict, error) {
				asked++
				checkEqual(t, "Step", a.Step, "")
				return everonce.Happened("found"), nil
			}))
			checkEqual(t, "value", res.Value, "found")
			checkEqual(t, "charges", charges, 1)
			checkEqual(t, "asked", asked, 1)
		})
	}
}

// Of two open steps, the one that keeps the operation is still named after the other was settled.
func TestSettlingAnotherStepKeepsTheUnknownOne(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	key := keyOf("x")
	inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
		for _, name := range []string{"mail", "post"} {
			_, err := everonce.Step(ctx, a, name, stepReturns("", errWork))
			checkErr(t, err, errWork)
		}
	})
	mails := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "mail", stepNever(t))
	}
	do(t, r, key, mails, everonce.Unknown, everonce.ErrOutcomeUnknown)
	checkErr(t, r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleDone, Step: "post", Value: ""}), nil)
	rec := recordIn(t, s, key)
	checkEqual(t, "state", rec.State, driver.StateAbandoned)
	checkEqual(t, "UnknownStep", rec.UnknownStep, "mail")
	do(t, r, key, never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)

	checkErr(t, r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail", Value: "sent"}), nil)
	checkEqual(t, "state", recordIn(t, s, key).State, driver.StateReleased)
	res, _ := do(t, r, key, mails, everonce.Executed, nil)
	checkEqual(t, "value", res.Value, "sent")
}
