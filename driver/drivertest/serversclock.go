package drivertest

import (
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// apart is how far this process's clock must be from the server's for [ServersClock] to prove something.
const apart = 365 * 24 * time.Hour

// ServersClock checks that every time of a store comes from its server's clock (rule 2). Call it where this process has
// another clock, such as in a bubble of testing/synctest, whose clock starts in the year 2000: if the clocks agree, the
// test fails. server returns the server's time. The store must be a [driver.Lister] and a [driver.HealthChecker].
func ServersClock(t *testing.T, s driver.Store, server func() time.Time) {
	t.Helper()
	e := newEnv(t, Harness{Store: s}, Capabilities{})
	before := server()
	if off := time.Since(before); off.Abs() < apart {
		t.Fatalf("this process has the server's time, %v", before)
	}
	between := func(what string, at time.Time) {
		t.Helper()
		if after := server(); at.Before(normalTime(before)) || at.After(after) {
			t.Errorf("%s is %v, want a time of the server's from %v to %v", what, at, before, after)
		}
	}

	req := claimReq(e.key())
	req.Lease = short
	a := e.claimed(req)
	between("ClaimedAt", a.rec.ClaimedAt)
	between("the lease's beginning", a.rec.LeaseUntil.Add(-short))
	var res driver.ClaimResult
	for lapsed := false; !lapsed; { // by when the server says so
		res = e.claim(a.taking(driver.TakeNone))
		if lapsed = !res.Now.Before(a.rec.LeaseUntil); lapsed != (res.Decision == driver.DecideAbandoned) {
			t.Fatalf("%v of a lease until %v at %v", res.Decision, a.rec.LeaseUntil, res.Now)
		}
	}
	between("the time of Claim", res.Now)

	before = server()
	e.is("Renew", a.renew(a.renewal()), nil)
	a.stepped("mail", driver.StepOpen)
	rec := e.get(a.key())
	between("UpdatedAt", rec.UpdatedAt)
	between("the step's beginning", rec.Steps[0].BeganAt)
	between("the time of Get", e.now())
	done := a.completion("v")
	done.Lifetime = driver.Lifetime{Retention: short, Remember: long}
	_, err := s.Complete(e.ctx, done)
	e.is("Complete", err, nil)
	for over := false; !over; {
		res = e.claim(a.taking(driver.TakeNone))
		if over = !res.Now.Before(res.Record.ResultUntil); over != (res.Decision == driver.DecideExpired) {
			t.Fatalf("%v of a result until %v at %v", res.Decision, res.Record.ResultUntil, res.Now)
		}
	}

	list, err := s.(driver.Lister).List(e.ctx, driver.ListRequest{States: []driver.State{driver.StateTombstone}})
	e.is("List", err, nil)
	health, err := s.(driver.HealthChecker).Health(e.ctx, driver.HealthRequest{})
	e.is("Health", err, nil)
	between("the time of List", list.Now)
	between("the time of Health", health.Now)
	if len(list.Records) != 1 || health.Completed != 1 {
		t.Errorf("%d records are listed as expired, %d counted as done; want one", len(list.Records), health.Completed)
	}
}
