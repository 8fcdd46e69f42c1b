package drivertest

import (
	"github.com/everonce/everonce/driver"
)

// checkTxStepOnce commits a step once more that is recorded as ended already: as the packets of a commit do
// that was given up for lost, and made again meanwhile. The attempt is the same, and holds its record: it is
// the step alone that can refuse, and with it the effect that comes twice.
func checkTxStepOnce[Tx any](e *txEnv[Tx]) {
	a := e.claimed(claimReq(e.key()))
	commit := func(name, data string) error {
		e.Helper()
		o := e.begin(nil)
		o.apply(a.req.Name)
		step := a.stepping(name, driver.StepDone)
		step.Step.Result = value(data)
		return errOf(o.Commit(e.ctx, driver.CommitRequest{SaveStep: &step}))
	}
	e.ok("the first commit", commit("charge", "first"))
	before := e.get(a.key())
	for range 2 {
		e.is("Commit of a step that is done", commit("charge", "late"), driver.ErrLeaseLost)
		e.counted(a.req.Name, 1)
		e.same("the record", e.get(a.key()), before)
	}

	// One that was done outside of the transaction stands as well.
	a.stepped("mail", driver.StepDone)
	e.is("Commit of a step that was saved", commit("mail", "late"), driver.ErrLeaseLost)
	e.counted(a.req.Name, 1)

	// So does one that this attempt has ended as not done: its work got that answer.
	a.stepped("refused", driver.StepNotDone)
	before = e.get(a.key())
	e.is("Commit of a step that was not done", commit("refused", "late"), driver.ErrLeaseLost)
	e.counted(a.req.Name, 1)
	e.same("the record", e.get(a.key()), before)

	// A step that an earlier attempt left open, or not done, is still written.
	for i, state := range []driver.StepState{driver.StepOpen, driver.StepNotDone} {
		name := state.String()
		a.stepped(name, state)
		a.released(driver.StateReleased)
		a = e.claimed(a.taking(driver.TakeNone))
		e.ok("Commit of a step that is "+name, commit(name, "now"))
		e.counted(a.req.Name, 2+i)
		rec := e.get(a.key())
		if s, ok := rec.Step(name); !ok || s.State != driver.StepDone || string(s.Result.Data) != "now" {
			e.Errorf("the step is %+v, want it done, with the result of its commit", s)
		}
	}

	// So it is where both transactions are open at once, and both have had their effect: the one that
	// commits second is the late one.
	if !e.caps.OneWriter {
		first, late := e.begin(nil), e.begin(nil)
		first.apply(a.req.Name)
		late.apply(a.req.Name + "/late") // of another name, so that it does not wait for the first one's row
		step, again := a.stepping("both", driver.StepDone), a.stepping("both", driver.StepDone)
		first.commit(driver.CommitRequest{SaveStep: &step})
		e.is("the late Commit", errOf(late.Commit(e.ctx, driver.CommitRequest{SaveStep: &again})), driver.ErrLeaseLost)
		e.counted(a.req.Name, 4)
		e.counted(a.req.Name+"/late", 0)
	}
	a.completed("done")
}
