package drivertest

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// checkUnreadStep spoils a step that was done, as a whole, and by the kind of its result alone.
func checkUnreadStep(e *env) {
	if e.h.UnreadStep == nil {
		e.Logf("nothing spoils a step (Harness.UnreadStep is nil)")
	} else {
		checkSpoiltStep(e, "the step is spoilt: ", e.h.UnreadStep)
	}
	if e.h.UnreadResult == nil {
		e.Logf("nothing spoils the result of a step (Harness.UnreadResult is nil)")
		return
	}
	for _, kind := range []int{0, int(driver.ResultElided) + 1} {
		checkSpoiltStep(e, fmt.Sprintf("its result is of kind %d: ", kind), func(id driver.RecordID, name string) { e.h.UnreadResult(id, name, kind) })
	}
}

// checkSpoiltStep spoils a step that was done: it is unknown then, whatever its policy, until somebody settles it.
func checkSpoiltStep(e *env, how string, spoil func(id driver.RecordID, name string)) {
	check := func(what string, rec driver.Record) {
		hook, ok := rec.Step("hook")
		mail, there := rec.Step("mail")
		if len(rec.Steps) != 2 || !ok || hook.State != driver.StepDone || !there || mail.State >= driver.StepOpen && mail.State <= driver.StepNotDone {
			e.Errorf(how+"%s: the steps are %+v, want one that is done, and the name of the other", what, rec.Steps)
		}
	}
	for _, done := range []bool{true, false} { // as who settles it says
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepDone)
		a.stepped("hook", driver.StepDone)
		a.released(driver.StateReleased)
		spoil(a.req.ID, "mail")
		check("Get", e.get(a.key()))
		b := e.claimed(a.taking(driver.TakeNone))
		check("a claim", b.rec)
		b.released(driver.StateAbandoned)
		c := e.claimed(a.taking(driver.TakeToSettle))
		check("a claim to settle", c.rec)
		c.released(driver.StateAbandoned)

		r, runs := e.receiver(e.s, everonce.Reexecute), 0
		deliver := func() (string, error) {
			res, err := everonce.Do(e.ctx, r, a.key(), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				return everonce.Step(ctx, a, "mail", func(context.Context) (string, error) {
					runs++
					return "sent again", nil
				})
			}, sumA)
			return res.Value, err
		}
		_, err := deliver()
		e.is(how+"a delivery", err, everonce.ErrOutcomeUnknown)
		rec := e.get(a.key())
		check("after a delivery", rec)
		if runs != 0 || rec.StateAt(e.now()) != driver.StateAbandoned || rec.UnknownStep != "mail" {
			e.Errorf(how+"the step ran %d times, and the record is %v, with %q unknown; want 0, abandoned, and the step", runs, rec.State, rec.UnknownStep)
		}
		s, want := everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail", Encoded: []byte("sent"), Codec: "raw"}, "sent"
		if !done {
			s, want = everonce.Settlement{Verdict: everonce.SettleNotDone, Step: "mail"}, "sent again"
		}
		e.is(how+"Settle of the step", r.Settle(e.ctx, a.key(), s), nil)
		if got, err := deliver(); got != want || err != nil {
			e.Errorf(how+"the delivery that follows gets %q, %v; want %q", got, err, want)
		}
	}
	a := e.claimed(claimReq(e.key()))
	a.stepped("mail", driver.StepDone)
	a.released(driver.StateAbandoned)
	spoil(a.req.ID, "mail")
	e.is(how+"Settle of the operation", e.receiver(e.s, everonce.Refuse).Settle(e.ctx, a.key(), everonce.Settlement{Verdict: everonce.SettleDone}), nil)
	e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
}
