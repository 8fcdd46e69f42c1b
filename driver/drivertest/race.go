package drivertest

import (
	"fmt"

	"github.com/everonce/everonce/driver"
)

// raceChecks send two calls of one key at once: each is one atomic operation (rule 1), so one comes first, and the
// other is answered according to its result.
func raceChecks() []check {
	return []check{
		{name: "Rule03/ALateCompletionRacesATakeover", run: checkCompletionMeets},
		{name: "Rule03/ALateStepRacesATakeover", run: func(e *env) {
			e.renewalMeets("SaveStep", func(s driver.Store, a *attempt) error {
				_, err := s.SaveStep(e.ctx, a.stepping("mail", driver.StepDone))
				return err
			})
		}},
		{name: "Rule03/ALateRenewalRacesATakeover", run: func(e *env) {
			e.renewalMeets("Renew", func(s driver.Store, a *attempt) error {
				_, err := s.Renew(e.ctx, a.renewal())
				return err
			})
		}},
		{name: "Rule03/ALateReleaseRacesATakeover", run: checkReleaseMeets},
		{name: "Rule03/NoRenewalUndoesACompletion", run: func(e *env) { e.endMeetsRenewals(driver.StateCompleted) }},
		{name: "Rule03/NoRenewalUndoesARelease", run: func(e *env) { e.endMeetsRenewals(driver.StateReleased) }},
	}
}

// meetings is the number of runs of each race.
const meetings = 10

// handle returns one of the two handles: callers by turns are callers of two processes.
func (e *env) handle(i int) driver.Store {
	if i%2 == 1 {
		return e.h.Peer
	}
	return e.s
}

// collide lets an attempt's lease run out, and sends a late write of it and a takeover at once, through two
// handles.
func (e *env) collide(write func(s driver.Store, a *attempt), judge func(a, b *attempt, decision driver.Decision)) {
	e.Helper()
	for i := range meetings {
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepOpen)
		a.lapse()
		req := a.taking(driver.TakeAbandoned)
		var res driver.ClaimResult
		var err error
		each(2, func(who int) {
			if who == 0 {
				write(e.handle(i), a)
			} else {
				res, err = e.handle(i+1).Claim(e.ctx, req)
			}
		})
		if err != nil {
			e.Fatalf("Claim: %v", err)
		}
		judge(a, attemptOf(e, req, res), res.Decision)
	}
}

func checkCompletionMeets(e *env) {
	var err error
	e.collide(func(s driver.Store, a *attempt) {
		_, err = s.Complete(e.ctx, a.completion("late"))
	}, func(a, b *attempt, decision driver.Decision) {
		rec := e.get(a.key())
		switch {
		case err == nil && decision == driver.DecideReplay:
			if rec.Nonce != a.req.Nonce || string(rec.Result.Data) != "late" {
				e.Fatalf("a completion was accepted, and the record is %v with %d bytes", rec.State, len(rec.Result.Data))
			}
		case err == nil:
			e.Fatalf("a late completion was accepted, and a takeover that came with it is %v, want replay", decision)
		default:
			e.is("Complete", err, driver.ErrLeaseLost)
			e.tookOver(b, decision, rec)
			b.completed("done")
		}
	})
}

// renewalMeets sends a write that renews the lease and a takeover at once.
func (e *env) renewalMeets(what string, write func(s driver.Store, a *attempt) error) {
	e.Helper()
	var err error
	e.collide(func(s driver.Store, a *attempt) { err = write(s, a) }, func(a, b *attempt, decision driver.Decision) {
		rec := e.get(a.key())
		step, _ := rec.Step("mail")
		switch {
		case err == nil && decision == driver.DecideInProgress:
			if rec.Nonce != a.req.Nonce || what == "SaveStep" && step.State != driver.StepDone {
				e.Fatalf("a late %s was accepted, and another attempt has the record, or its step is %v", what, step.State)
			}
			a.completed("done")
		case err == nil:
			e.Fatalf("a late %s was accepted, and a takeover that came with it is %v, want in progress", what, decision)
		default:
			e.is(what, err, driver.ErrLeaseLost)
			e.tookOver(b, decision, rec)
			if step.State != driver.StepOpen {
				e.Errorf("a %s was refused, and the step is %v", what, step.State)
			}
			b.completed("done")
		}
	})
}

// tookOver checks that a takeover that came before the late write holds the record, as it was answered.
func (e *env) tookOver(b *attempt, decision driver.Decision, rec driver.Record) {
	e.Helper()
	if decision != driver.DecideClaimed {
		e.Fatalf("a late write was refused, and the takeover that came with it is %v, want claimed", decision)
	}
	e.same("the record that was taken over", rec, b.rec)
}

func checkReleaseMeets(e *env) {
	var res driver.ReleaseResult
	var err error
	e.collide(func(s driver.Store, a *attempt) {
		res, err = s.Release(e.ctx, a.releasing(driver.StateReleased))
	}, func(a, b *attempt, decision driver.Decision) {
		if err != nil {
			e.Fatalf("Release: %v", err)
		}
		e.tookOver(b, decision, e.get(a.key()))
		found := driver.StateReleased
		if res.Superseded {
			found = driver.StateAbandoned
		}
		if b.rec.Previous.State != found {
			e.Errorf("a release was superseded: %v, and the claim that came with it found the record %v", res.Superseded, b.rec.Previous.State)
		}
		b.completed("done")
	})
}

// endMeetsRenewals ends an attempt while its own renewals and a step are on their way: none of them revives it.
func (e *env) endMeetsRenewals(end driver.State) {
	e.Helper()
	for range meetings {
		a := e.claimed(claimReq(e.key()))
		var ended, stepped error
		each(6, func(who int) {
			switch s := e.handle(who); who {
			case 0:
				if end == driver.StateCompleted {
					_, ended = s.Complete(e.ctx, a.completion("done"))
				} else {
					_, ended = s.Release(e.ctx, a.releasing(end))
				}
			case 1:
				_, stepped = s.SaveStep(e.ctx, a.stepping("mail", driver.StepDone))
			default:
				if _, err := s.Renew(e.ctx, a.renewal()); err != nil {
					e.is("Renew", err, driver.ErrLeaseLost)
				}
			}
		})
		e.ok("the end of the attempt", ended)
		rec := e.get(a.key())
		if rec.State != end || end == driver.StateCompleted && string(rec.Result.Data) != "done" {
			e.Fatalf("the attempt has ended, and its record is %v with %d bytes, want %v: a renewal has undone it", rec.State, len(rec.Result.Data), end)
		}
		if stepped != nil {
			e.is("SaveStep", stepped, driver.ErrLeaseLost)
		}
		if s, ok := rec.Step("mail"); ok != (stepped == nil) {
			e.Errorf("the step that collided with the end was answered %v, and is %v", stepped, fmt.Sprint(ok, s.State))
		}
		if end == driver.StateCompleted {
			e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		} else {
			e.claimed(a.taking(driver.TakeNone)).completed("done")
		}
	}
}
