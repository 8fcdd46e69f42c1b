package drivertest

import (
	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// repeatChecks test calls whose answer was lost, and packets that come late (rule 4).
func repeatChecks() []check {
	return []check{
		{name: "Rule04/ClaimRepeated", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			again := e.claimed(a.req)
			want := a.rec
			want.UpdatedAt, want.LeaseUntil = again.rec.UpdatedAt, again.rec.UpdatedAt.Add(a.req.Lease)
			e.same("the repeated claim", again.rec, want)
			e.same("the record", e.get(a.key()), want)

			a.lapse()
			renewed := e.claimed(a.req)
			e.same("the claim repeated after its lease", renewed.rec, e.get(a.key()))
			e.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
			a.completed("done")
		}},
		{name: "Rule04/ClaimRepeatedTellsThePreviousAgain", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.released(driver.StateAbandoned)
			for _, take := range []driver.TakeOver{driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
				b := e.claimed(a.taking(take))
				again := e.claimed(b.req)
				if again.rec.Previous != b.rec.Previous || b.rec.Previous.State == 0 || again.rec.Token != b.rec.Token || again.rec.Attempt != b.rec.Attempt {
					e.Errorf("the claim found %+v, and when it is repeated %+v", b.rec.Previous, again.rec.Previous)
				}
				b.released(driver.StateAbandoned)
			}
		}},
		{name: "Rule04/ADuplicateGetsTheRunningAttemptsNonce", run: func(e *env) { // a waiting caller whose claim came late learns that from the others
			a := e.claimed(claimReq(e.key()))
			res := e.decided(a.taking(driver.TakeNone), driver.DecideInProgress)
			res.Record.Steps = nil // which are not promised here
			e.same("the returned record", res.Record, e.get(a.key()))
			if res.Record.Nonce != a.req.Nonce {
				e.Errorf("the returned nonce is not the running claim's")
			}
		}},
		{name: "Rule04/CompleteRepeated", run: func(e *env) {
			req := claimReq(e.key())
			req.Lifetime.Retention = short
			a := e.claimed(req)
			a.completed("done")
			first := e.get(a.key())
			for range 2 {
				e.is("Complete, repeated", a.complete("done"), nil)
				e.same("the record", e.get(a.key()), first)
				e.pass(short) // and of a tombstone
			}
			e.purge()
			e.is("Complete, repeated after a purge of the result", a.complete("done"), nil)
			e.decided(a.taking(driver.TakeNone), driver.DecideExpired)
		}},
		{name: "Rule04/CompleteRepeatedWithAnotherResult", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.completed("done")
			first := e.get(a.key())
			e.is("Complete, repeated", a.complete("done again"), nil)
			e.same("the record", e.get(a.key()), first)
			if res := e.decided(a.taking(driver.TakeNone), driver.DecideReplay); string(res.Record.Result.Data) != "done" {
				e.Errorf("after a repeated completion its result is replayed, want the first one's")
			}
		}},
		{name: "Rule04/ReleaseRepeated", run: func(e *env) {
			for _, state := range []driver.State{driver.StateReleased, driver.StateAbandoned} {
				a := e.claimed(claimReq(e.key()))
				a.released(state)
				first := e.get(a.key())
				a.released(state)
				e.same("the record", e.get(a.key()), first)
			}
		}},
		{name: "Rule04/ReleaseRepeatedAfterAnotherClaim", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.released(driver.StateReleased)
			b := e.claimed(a.taking(driver.TakeNone))
			if res := e.release(a.releasing(driver.StateReleased)); !res.Superseded {
				e.Errorf("not superseded")
			}
			e.same("the record of the other claim", e.get(a.key()), b.rec)
			b.completed("done")
			if res := e.release(a.releasing(driver.StateReleased)); !res.Superseded {
				e.Errorf("not superseded by the completion")
			}
			e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		}},
		{name: "Rule04/ReleaseRepeatedAfterTheRecordsEnd", run: func(e *env) {
			req := claimReq(e.key())
			req.Lifetime = driver.Lifetime{Retention: short}
			a := e.claimed(req)
			a.released(driver.StateReleased)
			e.pass(short)
			e.purge()
			if _, err := e.s.Release(e.ctx, a.releasing(driver.StateReleased)); err != nil {
				e.Errorf("Release, repeated after a purge: %v", err)
			}
			e.absent(a.key())
		}},
		{name: "Rule04/StepRepeated", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			for _, state := range []driver.StepState{driver.StepOpen, driver.StepDone} {
				a.stepped("mail", state)
				first := e.get(a.key()).Steps
				a.stepped("mail", state)
				second := e.get(a.key()).Steps
				if len(first) != 1 || len(second) != 1 || second[0].State != state || !second[0].BeganAt.Equal(first[0].BeganAt) {
					e.Errorf("the step is %+v, and repeated %+v", first, second)
				}
			}
		}},
		{name: "Rule04/DelayedClaimAfterRelease", run: func(e *env) {
			for _, state := range []driver.State{driver.StateReleased, driver.StateAbandoned} {
				a := e.claimed(claimReq(e.key()))
				a.released(state)
				before := e.get(a.key())
				for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeAbandoned} {
					req := a.req
					req.Take = take
					e.claimFails(req, driver.ErrAttemptEnded)
				}
				e.same("the record after its delayed claim", e.get(a.key()), before)
			}
		}},
		{name: "Rule04/DelayedClaimAfterReleaseByNonce", run: func(e *env) {
			req := claimReq(e.key())
			if res := e.release(byNonce(req)); res.Superseded {
				e.Errorf("a release by nonce before its claim is superseded")
			}
			e.claimFails(req, driver.ErrAttemptEnded)
			rec := e.get(everonce.Key{Scope: req.Scope, ID: req.Name})
			if rec.State != driver.StateReleased || rec.Nonce != req.Nonce {
				e.Errorf("the record is %v, by that nonce: %v", rec.State, rec.Nonce == req.Nonce)
			}
			b := e.claimed(claimReq(everonce.Key{Scope: req.Scope, ID: req.Name}))
			if b.rec.Attempt != 1 || b.rec.Token <= rec.Token {
				e.Errorf("the next claim is attempt %d with token %d after %d; want 1, and growth", b.rec.Attempt, b.rec.Token, rec.Token)
			}
		}},
		{name: "Rule04/DelayedClaimAfterCompletion", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.completed("done")
			before := e.get(a.key())
			e.decided(a.req, driver.DecideReplay)
			e.same("the record after its delayed claim", e.get(a.key()), before)
		}},
		{name: "Rule04/DelayedCompletionAfterRelease", run: func(e *env) {
			for _, state := range []driver.State{driver.StateReleased, driver.StateAbandoned} {
				a := e.claimed(claimReq(e.key()))
				a.released(state)
				before := e.get(a.key())
				e.is("Complete", a.complete("ghost"), driver.ErrLeaseLost)
				e.is("Renew", a.renew(a.renewal()), driver.ErrLeaseLost)
				e.is("SaveStep", a.step(a.stepping("mail", driver.StepDone)), driver.ErrLeaseLost)
				e.same("the record", e.get(a.key()), before)
			}
		}},
		{name: "Rule04/DelayedWritesAfterCompletion", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.stepped("mail", driver.StepDone)
			a.completed("done")
			before := e.get(a.key())
			e.is("Renew", a.renew(a.renewal()), driver.ErrLeaseLost)
			e.is("SaveStep", a.step(a.stepping("mail", driver.StepOpen)), driver.ErrLeaseLost)
			for _, req := range []driver.ReleaseRequest{a.releasing(driver.StateReleased), a.releasing(driver.StateAbandoned), byNonce(a.req)} {
				if res := e.release(req); !res.Superseded {
					e.Errorf("a release after the completion is not superseded")
				}
			}
			e.same("the record", e.get(a.key()), before)
		}},
		{name: "Rule04/DelayedStepBeginReopensNothing", run: checkDelayedStep},
		{name: "Rule04/ReleaseByNonceEndsTheClaim", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			if res := e.release(byNonce(a.req)); res.Superseded {
				e.Errorf("superseded")
			}
			if rec := e.get(a.key()); rec.State != driver.StateReleased || rec.LastError != "retracted" {
				e.Errorf("the record is %v after %q, want released after retracted", rec.State, rec.LastError)
			}
			if res := e.release(byNonce(a.req)); res.Superseded {
				e.Errorf("repeated: superseded")
			}
			b := e.claimed(a.taking(driver.TakeNone))
			if res := e.release(byNonce(a.req)); !res.Superseded {
				e.Errorf("after another claim: not superseded")
			}
			e.same("the record of the other claim", e.get(a.key()), b.rec)
		}},
		{name: "Rule04/ReleaseByNoncePutsATakenRecordBack", run: checkPutBack},
	}
}

func checkDelayedStep(e *env) {
	for _, end := range []driver.StepState{driver.StepDone, driver.StepNotDone} {
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepOpen)
		a.stepped("mail", end)
		before := e.get(a.key()).Steps
		a.stepped("mail", driver.StepOpen)
		after := e.get(a.key()).Steps
		if len(after) != 1 || after[0].State != end || len(after[0].Result.Data) != len(before[0].Result.Data) {
			e.Errorf("a delayed begin made the step %v, want %v unchanged", after[0].State, end)
		}
		a.released(driver.StateReleased)
		b := e.claimed(a.taking(driver.TakeNone))
		b.stepped("mail", driver.StepOpen)
		want := driver.StepOpen // a step that was not done begins again in the next attempt
		if end == driver.StepDone {
			want = driver.StepDone
		}
		if s, _ := e.rec(b).Step("mail"); s.State != want || !s.BeganAt.Equal(before[0].BeganAt) {
			e.Errorf("begun by the next attempt the step is %v since %v, want %v since %v", s.State, s.BeganAt, want, before[0].BeganAt)
		}
	}
	a := e.claimed(claimReq(e.key()))
	later := a.stepping("mail", driver.StepNotDone)
	later.Step.Attempt += 8
	e.is("SaveStep", a.step(later), nil)
	a.stepped("mail", driver.StepOpen)
	if s, _ := e.rec(a).Step("mail"); s.State != driver.StepOpen || s.Attempt != a.rec.Attempt {
		e.Errorf("a step that began, and that a later attempt never seen here reported as not done, is %v: that hides that it may be done", s.State)
	}
}

func (e *env) rec(a *attempt) *driver.Record {
	e.Helper()
	rec := e.get(a.key())
	return &rec
}

func checkPutBack(e *env) {
	for _, take := range []driver.TakeOver{driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
		a := e.claimed(claimReq(e.key()))
		req := a.releasing(driver.StateAbandoned)
		if take != driver.TakeAbandoned {
			req.Step = "mail"
		}
		e.release(req)
		b := e.claimed(a.taking(take))
		if res := e.release(byNonce(b.req)); res.Superseded {
			e.Errorf("superseded")
		}
		rec := e.get(a.key())
		if rec.State != driver.StateAbandoned || rec.UnknownStep != req.Step {
			e.Errorf("the record that a retracted claim had taken over is %v by step %q, want abandoned by %q", rec.State, rec.UnknownStep, req.Step)
		}
		e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned)
		e.claimFails(b.req, driver.ErrAttemptEnded)
	}
	live := e.claimed(claimReq(e.key()))
	e.release(byNonce(e.claimed(live.taking(driver.TakeForced)).req))
	if state := e.rec(live).State; state != driver.StateAbandoned {
		e.Errorf("the live claim that a retracted claim had taken over by force is %v, want abandoned: it is unknown what its work has done", state)
	}
}
