package drivertest

import (
	"github.com/everonce/everonce/driver"
)

// fenceChecks test token and nonce: every write is conditional on both, and tokens grow (rule 3).
func fenceChecks() []check {
	return []check{
		{name: "Rule03/TokenGrowsAcrossRelease", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			for range 5 {
				a.released(driver.StateReleased)
				b := e.claimed(a.taking(driver.TakeNone))
				e.grew(a, b)
				a = b
			}
		}},
		{name: "Rule03/TokenGrowsAcrossTakeover", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			for range 3 {
				a.lapse()
				b := e.claimed(a.taking(driver.TakeAbandoned))
				e.grew(a, b)
				b.released(driver.StateAbandoned)
				a = e.claimed(a.taking(driver.TakeToSettle))
				e.grew(b, a)
			}
		}},
		{name: "Rule03/TokenGrowsAcrossTheEndOfARecord", run: func(e *env) { e.tokenAcrossEnd(false) }},
		{name: "Rule03/TokenGrowsAcrossPurge", run: func(e *env) { e.tokenAcrossEnd(true) }},
		{name: "Rule03/TokenGrowsThoughTheClockRunsBack", run: checkClockBack},
		{name: "Rule03/PausedOwnerCompletesBeforeATakeover", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.lapse()
			e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned)
			a.completed("late, and in time")
			res := e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
			if string(res.Record.Result.Data) != "late, and in time" {
				e.Errorf("another result is replayed")
			}
		}},
		{name: "Rule03/PausedOwnerWritesAfterATakeover", run: checkLateOwner},
		{name: "Rule03/PausedOwnerRenewsBeforeATakeover", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.lapse()
			e.is("Renew of a lapsed lease", a.renew(a.renewal()), nil)
			e.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
			a.completed("done")
		}},
		{name: "Rule03/WrongTokenOrNonce", run: checkWrongToken},
		{name: "Rule03/NoRecord", run: func(e *env) {
			a := attemptOf(e, claimReq(e.key()), driver.ClaimResult{Record: driver.Record{Token: 1, Nonce: driver.NewNonce(), Attempt: 1}})
			e.is("Complete", a.complete("done"), driver.ErrLeaseLost)
			e.is("Renew", a.renew(a.renewal()), driver.ErrLeaseLost)
			e.is("SaveStep", a.step(a.stepping("mail", driver.StepOpen)), driver.ErrLeaseLost)
			if res := e.release(a.releasing(driver.StateReleased)); !res.Superseded {
				e.Errorf("Release without a record is not superseded")
			}
			e.absent(a.key())
		}},
	}
}

func (e *env) grew(a, b *attempt) {
	e.Helper()
	if b.rec.Token <= a.rec.Token {
		e.Fatalf("the token went from %d to %d, want growth", a.rec.Token, b.rec.Token)
	}
}

// tokenAcrossEnd follows a key over the end of its record, by every way in which a record ends.
func (e *env) tokenAcrossEnd(purge bool) {
	e.Helper()
	req := claimReq(e.key())
	req.Lifetime = driver.Lifetime{Retention: short}
	req.ExpireUnsettled = true
	var last *attempt
	for _, end := range []func(a *attempt){
		func(a *attempt) { a.completed("done") },
		func(a *attempt) { a.released(driver.StateReleased) },
		func(a *attempt) { a.released(driver.StateAbandoned) },
		func(a *attempt) { a.lapse() },
		func(*attempt) {},
	} {
		req.Nonce = driver.NewNonce()
		a := e.claimed(req)
		if a.rec.Attempt != 1 || a.rec.Previous != (driver.Previous{}) {
			e.Fatalf("attempt %d after %v, want a new record", a.rec.Attempt, a.rec.Previous.State)
		}
		if last != nil {
			e.grew(last, a)
			e.is("Complete by an attempt of the record before", last.complete("ghost"), driver.ErrLeaseLost)
		}
		end(a)
		e.pass(short)
		if purge {
			e.purge()
		}
		last = a
	}
}

func checkClockBack(e *env) {
	if e.h.Advance == nil {
		e.Logf("the clock cannot be moved: tested where it can")
	}
	a := e.claimed(claimReq(e.key()))
	for range 3 {
		if e.h.Advance != nil {
			e.h.Advance(-long / 2)
		}
		e.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
		a.released(driver.StateReleased)
		b := e.claimed(a.taking(driver.TakeNone))
		e.grew(a, b)
		e.is("Complete by the attempt before", a.complete("late"), driver.ErrLeaseLost)
		a = b
	}
	a.completed("done")
	e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
}

// checkLateOwner wakes an owner after somebody else took its record, and did with it what can be done.
func checkLateOwner(e *env) {
	for name, then := range map[string]func(b *attempt){
		"runs":      func(*attempt) {},
		"completed": func(b *attempt) { b.completed("by the other") },
		"released":  func(b *attempt) { b.released(driver.StateReleased) },
		"abandoned": func(b *attempt) { b.released(driver.StateAbandoned) },
		"lapsed":    func(b *attempt) { b.lapse() },
	} {
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepOpen)
		a.lapse()
		b := e.claimed(a.taking(driver.TakeAbandoned))
		then(b)
		before := e.get(a.key())
		e.is(name+": late Complete", a.complete("by the late one"), driver.ErrLeaseLost)
		e.is(name+": late Renew", a.renew(a.renewal()), driver.ErrLeaseLost)
		e.is(name+": late SaveStep", a.step(a.stepping("mail", driver.StepDone)), driver.ErrLeaseLost)
		for _, state := range []driver.State{driver.StateReleased, driver.StateAbandoned} {
			if res := e.release(a.releasing(state)); !res.Superseded {
				e.Errorf("%s: a late release is not superseded", name)
			}
		}
		// A released record remembers the nonce of the latest claim that was taken back, so that its packet
		// is refused: to be released once more changes nothing else.
		if res := e.release(byNonce(a.req)); !res.Superseded && name != "released" {
			e.Errorf("%s: a late release by nonce is not superseded", name)
		}
		if name == "released" {
			before.Nonce = a.req.Nonce
		}
		e.same(name+": the record after late writes", e.get(a.key()), before)
	}
}

func checkWrongToken(e *env) {
	held := e.claimed(claimReq(e.key()))
	held.stepped("mail", driver.StepOpen)
	for name, forge := range map[string]func(a *attempt){
		"a higher token": func(a *attempt) { a.rec.Token++ },
		"a lower token":  func(a *attempt) { a.rec.Token-- },
		"another nonce":  func(a *attempt) { a.rec.Nonce = driver.NewNonce() },
		"another key's":  func(a *attempt) { a.rec = e.claimed(claimReq(e.key())).rec },
	} {
		a := *held
		forge(&a)
		before := e.get(held.key())
		e.is(name+": Complete", a.complete("forged"), driver.ErrLeaseLost)
		e.is(name+": Renew", a.renew(a.renewal()), driver.ErrLeaseLost)
		e.is(name+": SaveStep", a.step(a.stepping("mail", driver.StepDone)), driver.ErrLeaseLost)
		e.is(name+": SaveStep of a new step", a.step(a.stepping("hook", driver.StepDone)), driver.ErrLeaseLost)
		if res := e.release(a.releasing(driver.StateReleased)); !res.Superseded {
			e.Errorf("%s: Release is not superseded", name)
		}
		e.same(name+": the record after forged writes", e.get(held.key()), before)
	}
	held.completed("done")
}
