package drivertest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/everonce/everonce/driver"
)

// stepChecks test steps, which live with their operation's record (rule 18).
func stepChecks() []check {
	return []check{
		{name: "Rule18/AStepBeginsAndEnds", run: checkStep},
		{name: "Rule11/StepResultsByteForByte", run: checkStepResults},
		{name: "Rule18/StepsSurviveTheirAttempt", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			names := []string{"third", "first", "second"}
			for _, n := range names {
				a.stepped(n, driver.StepOpen)
			}
			a.stepped("first", driver.StepDone)
			a.stepped("second", driver.StepNotDone)
			steps := e.get(a.key()).Steps
			for i, next := range []func(a *attempt) *attempt{
				func(a *attempt) *attempt {
					a.released(driver.StateReleased)
					return e.claimed(a.taking(driver.TakeNone))
				},
				func(a *attempt) *attempt { a.lapse(); return e.claimed(a.taking(driver.TakeAbandoned)) },
				func(a *attempt) *attempt {
					a.released(driver.StateAbandoned)
					return e.claimed(a.taking(driver.TakeAbandoned))
				},
				func(a *attempt) *attempt { return e.claimed(a.req) },
			} {
				a = next(a)
				want := a.rec
				want.Steps = steps
				e.same(fmt.Sprintf("case %d: the answer's record", i), a.rec, want)
				e.same(fmt.Sprintf("case %d: the record", i), e.get(a.key()), want)
			}
			if !slices.EqualFunc(steps, names, func(s driver.StepRecord, n string) bool { return s.Name == n }) {
				e.Errorf("the steps are %v, want them in the order of their beginning: %v", steps, names)
			}
		}},
		{name: "Rule18/AStepThatCanNotBeReadIsUnknown", run: checkUnreadStep},
		{name: "Rule18/ADoneStepStaysDone", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.stepped("mail", driver.StepOpen)
			a.stepped("mail", driver.StepDone)
			steps := e.get(a.key()).Steps
			a.released(driver.StateReleased)
			b := e.claimed(a.taking(driver.TakeNone))
			for _, state := range []driver.StepState{driver.StepOpen, driver.StepNotDone, driver.StepDone} {
				req := b.stepping("mail", state)
				req.Step.Result = value("another result")
				e.is("SaveStep over a done step", b.step(req), nil)
			}
			got := e.get(a.key())
			unchanged := got
			unchanged.Steps = steps
			e.same("the record", got, unchanged)
		}},
		{name: "Rule18/StepsOfOneAttemptAtOnce", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			n := min(e.caps.Callers, driver.MaxSteps)
			each(n, func(i int) {
				for _, state := range []driver.StepState{driver.StepOpen, driver.StepDone} {
					if err := a.step(a.stepping(fmt.Sprint("step-", i), state)); err != nil {
						e.Errorf("SaveStep: %v", err)
					}
				}
			})
			rec := e.get(a.key())
			for i := range n {
				if s, ok := rec.Step(fmt.Sprint("step-", i)); !ok || s.State != driver.StepDone || string(s.Result.Data) != "step "+s.Name {
					e.Errorf("step %d is %v, found %v", i, s.State, ok)
				}
			}
			if len(rec.Steps) != n {
				e.Errorf("there are %d steps, want %d", len(rec.Steps), n)
			}
		}},
		{name: "Rule18/MoreThanMaxStepsAreRefused", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			for i := range driver.MaxSteps {
				a.stepped(fmt.Sprint(i), driver.StepOpen)
			}
			e.is("a step too many", a.step(a.stepping("more", driver.StepOpen)), driver.ErrTooLarge)
			a.stepped("0", driver.StepDone)
			if got := len(e.get(a.key()).Steps); got != driver.MaxSteps {
				e.Errorf("there are %d steps, want %d", got, driver.MaxSteps)
			}
		}},
		{name: "Rule18/AStepRenewsTheLease", run: func(e *env) {
			req := claimReq(e.key())
			req.Lease = short
			a := e.claimed(req)
			e.pass(short)
			a.req.Lease = 0
			a.stepped("mail", driver.StepOpen)
			e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned) // a lease of zero renews nothing
			a.req.Lease = long
			a.stepped("mail", driver.StepDone)
			e.decided(a.taking(driver.TakeNone), driver.DecideInProgress)
		}},
	}
}

func checkStep(e *env) {
	a := e.claimed(claimReq(e.key()))
	name := strings.Repeat("ß", driver.MaxStepNameLen/2)
	a.stepped(name, driver.StepOpen)
	rec := e.get(a.key())
	began := rec.UpdatedAt
	want := driver.StepRecord{Name: name, State: driver.StepOpen, Attempt: 1, BeganAt: began}
	wantRec := a.rec
	wantRec.UpdatedAt, wantRec.LeaseUntil = began, began.Add(a.req.Lease)
	wantRec.Steps = []driver.StepRecord{want}
	e.same("after the beginning", rec, wantRec)

	data := make([]byte, 256)
	for i := range data {
		data[i] = byte(i)
	}
	end := a.stepping(name, driver.StepDone)
	end.Step.Result = driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: data, Summary: data[:9]}
	e.is("SaveStep", a.step(end), nil)
	rec = e.get(a.key())
	wantRec.UpdatedAt, wantRec.LeaseUntil = rec.UpdatedAt, rec.UpdatedAt.Add(a.req.Lease)
	want.State, want.Result, want.EndedAt = driver.StepDone, end.Step.Result, rec.UpdatedAt
	wantRec.Steps = []driver.StepRecord{want}
	e.same("after the end", rec, wantRec)

	a.completed("done")
	rec = e.get(a.key())
	if len(rec.Steps) != 1 || rec.Steps[0].State != driver.StepDone {
		e.Errorf("the completed record has %d steps, want 1", len(rec.Steps))
	}
}

// checkStepResults saves results of steps of every kind and size: the next attempt gets what was saved.
func checkStepResults(e *env) {
	large := make([]byte, min(e.caps.MaxResult, 1<<17)) // more than a column of 64 KiB has room for
	for i := range large {
		large[i] = byte(i * 131 >> 3)
	}
	a := e.claimed(claimReq(e.key()))
	saved := append(results(), driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: large, Summary: large[:min(len(large), driver.MaxSummaryLen)]})
	for i, res := range saved {
		req := a.stepping(fmt.Sprint("step ", i), driver.StepDone)
		req.Step.Result = res
		e.is(fmt.Sprintf("SaveStep with %v of %d bytes", res.Kind, len(res.Data)), a.step(req), nil)
	}
	a.released(driver.StateReleased)
	b := e.claimed(a.taking(driver.TakeNone))
	for what, rec := range map[string]driver.Record{"returned to the next attempt": b.rec, "read": e.get(a.key())} {
		if len(rec.Steps) != len(saved) {
			e.Fatalf("%d steps are %s, want %d", len(rec.Steps), what, len(saved))
		}
		for i, step := range rec.Steps {
			if got, want := normalResult(step.Result), normalResult(saved[i]); !reflect.DeepEqual(got, want) {
				e.Errorf("when it is %s, the result of a step %s", what, diffResult(got, want))
			}
		}
	}
}
