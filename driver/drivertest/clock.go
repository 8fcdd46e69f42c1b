package drivertest

import (
	"reflect"
	"time"

	"github.com/everonce/everonce/driver"
)

// clockChecks test that time is the store's (rule 2).
func clockChecks() []check {
	return []check{
		{name: "Rule02/RequestsCarryNoTime", run: checkNoTimes},
		{name: "Rule02/LeaseCountsFromTheStoresClock", run: func(e *env) {
			for _, lease := range []time.Duration{time.Second, long} {
				req := claimReq(e.key())
				req.Lease = lease
				a := e.claimed(req)
				e.leaseFrom(a, "claim")
				e.is("Renew", a.renew(driver.RenewRequest{ID: req.ID, Token: a.rec.Token, Nonce: a.rec.Nonce, Lease: lease}), nil)
				e.leaseFrom(a, "renewal")
				a.stepped("mail", driver.StepOpen)
				e.leaseFrom(a, "step")
			}
		}},
		{name: "Rule02/ALeaseHoldsAndLapses", run: func(e *env) {
			req := claimReq(e.key())
			req.Lease = short
			a := e.claimed(req)
			until := e.get(a.key()).LeaseUntil
			for { // until the store itself says that the lease is over, others must wait
				res := e.claim(a.taking(driver.TakeNone))
				lapsed := !res.Now.Before(until)
				if lapsed && res.Decision != driver.DecideAbandoned || !lapsed && res.Decision != driver.DecideInProgress {
					e.Fatalf("%v, with %v left of the lease", res.Decision, until.Sub(res.Now))
				}
				if lapsed {
					break
				}
				e.pass(short / 5)
			}
		}},
		{name: "Rule02/LifetimesCountFromTheStoresClock", run: checkLifetimes},
		{name: "Rule02/CallersAnHourOff", run: checkSkew},
		{name: "Rule02/StepTimesAreTheStores", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			before := e.now()
			for _, off := range []time.Duration{-long, long} {
				for _, state := range []driver.StepState{driver.StepOpen, driver.StepDone} {
					req := a.stepping("mail"+off.String(), state)
					req.Step.BeganAt, req.Step.EndedAt = before.Add(off), before.Add(off)
					e.is("SaveStep", a.step(req), nil)
				}
			}
			after := e.now()
			for _, s := range e.get(a.key()).Steps {
				for _, at := range []time.Time{s.BeganAt, s.EndedAt} {
					if at.Before(normalTime(before)) || at.After(after) {
						e.Errorf("a step's time is %v, want one of the store's between %v and %v", at, before, after)
					}
				}
			}
		}},
	}
}

// leaseFrom checks that the lease of the attempt's record runs from the write.
func (e *env) leaseFrom(a *attempt, what string) {
	e.Helper()
	res := e.look(a.req.ID)
	if got := normalTime(res.Record.LeaseUntil).Sub(normalTime(res.Record.UpdatedAt)); got != a.req.Lease {
		e.Errorf("after the %s the lease is %v long, want %v", what, got, a.req.Lease)
	}
	if res.Record.UpdatedAt.After(res.Now) {
		e.Errorf("the %s was written at %v, after the store's time %v", what, res.Record.UpdatedAt, res.Now)
	}
	if a.rec.UpdatedAt.After(res.Record.UpdatedAt) {
		e.Errorf("the %s was written at %v, before the claim of %v", what, res.Record.UpdatedAt, a.rec.UpdatedAt)
	}
}

// checkNoTimes proves that no request can carry the caller's time.
func checkNoTimes(e *env) {
	when := reflect.TypeFor[time.Time]()
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		if t == when {
			e.Errorf("%s is a time of the caller's", path)
		}
		if t.Kind() == reflect.Struct && t != reflect.TypeFor[driver.StepRecord]() { // whose times the store sets
			for i := range t.NumField() {
				walk(path+"."+t.Field(i).Name, t.Field(i).Type)
			}
		}
	}
	store := reflect.TypeFor[driver.Store]()
	for i := range store.NumMethod() {
		walk(store.Method(i).Name, store.Method(i).Type.In(1))
	}
}

func checkLifetimes(e *env) {
	a := e.claimed(claimReq(e.key()))
	a.req.Lifetime = driver.Lifetime{Retention: time.Minute, Remember: long}
	a.completed("done")
	rec := e.get(a.key())
	for _, c := range []struct {
		name string
		at   time.Time
		want time.Duration
	}{
		{"CompletedAt", rec.CompletedAt, 0},
		{"ResultUntil", rec.ResultUntil, time.Minute},
		{"PurgeAt", rec.PurgeAt, time.Minute + long},
	} {
		if got := normalTime(c.at).Sub(normalTime(rec.UpdatedAt)); got != c.want {
			e.Errorf("%s is %v after the completion, want %v", c.name, got, c.want)
		}
	}
	if !rec.LeaseUntil.IsZero() {
		e.Errorf("a completed record has a lease")
	}

	b := e.claimed(claimReq(e.key()))
	b.released(driver.StateReleased)
	rec = e.get(b.key())
	if got := normalTime(rec.PurgeAt).Sub(normalTime(rec.UpdatedAt)); got != forLong.Total() {
		e.Errorf("a released record may be purged after %v, want %v", got, forLong.Total())
	}
}

// checkSkew runs lives of records while the clocks of the callers and of the store are an hour apart: it must make
// no difference. If the store's clock can be moved it is, both ways, and each of two handles, whose processes may
// have different clocks, must respect the other's claims. If it cannot be moved, the check logs that, and
// checkNoTimes alone shows that callers' clocks do not matter.
func checkSkew(e *env) {
	peer := e.to(e.reporter, e.h.Peer)
	offs := []time.Duration{0, long, -2 * long}
	if e.h.Advance == nil {
		offs = offs[:1]
		e.Logf("the store's clock cannot be moved (Harness.Advance is nil): no clock was an hour off")
	}
	for _, off := range offs {
		if off != 0 {
			e.h.Advance(off)
		}
		for _, pair := range [][2]*env{{e, peer}, {peer, e}} {
			owner, other := pair[0], pair[1]
			req := claimReq(e.key())
			req.Lease = long / 2
			a := owner.claimed(req)
			e.leaseFrom(a, "claim")
			other.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
			e.is("Renew", a.renew(driver.RenewRequest{ID: req.ID, Token: a.rec.Token, Nonce: a.rec.Nonce, Lease: req.Lease}), nil)
			e.leaseFrom(a, "renewal")
			other.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
			a.lapse()
			b := other.claimed(a.taking(driver.TakeAbandoned))
			b.req.Lifetime = driver.Lifetime{Retention: long / 2, Remember: long}
			b.completed("done")
			owner.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		}
	}
}
