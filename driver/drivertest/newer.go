package drivertest

import (
	"errors"
	"slices"

	"github.com/everonce/everonce/driver"
)

// newerChecks test records that a newer version has written: this one does not judge them, and leaves them
// unchanged.
func newerChecks() []check {
	return []check{
		{name: "NewerVersion/ItsRecordsAreRefused", run: checkNewerRefused},
		{name: "NewerVersion/APurgePassesItOver", run: checkNewerPurge, needs: func(c Capabilities) bool { return !c.RemovesByItself }},
		{name: "NewerVersion/AScopeIsForgottenWithoutIt", run: checkNewerKept, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
		{name: "NewerVersion/ItsRecordsAreListed", run: checkNewerListed, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "NewerVersion/ItsRecordsAreCountedApart", run: checkNewerCounted, needs: func(c Capabilities) bool { return c.HealthChecker }},
	}
}

// newer returns records that a newer version has written, by the state that they were in.
func (e *env) newer() map[string]*attempt {
	e.Helper()
	if e.h.Newer == nil {
		e.Logf("nothing writes as a newer version does (Harness.Newer is nil)")
		return nil
	}
	states := e.states()
	for _, a := range states {
		e.h.Newer(a.req.ID)
	}
	return states
}

// leftAlone checks that the record still has the newer format.
func (a *attempt) leftAlone(name string) {
	a.e.Helper()
	got, err := a.e.s.Get(a.e.ctx, driver.GetRequest{ID: a.req.ID})
	if !errors.Is(err, driver.ErrNewerRecord) && (err != nil || !got.Found || got.Record.Format != driver.FormatVersion+1) {
		a.e.Errorf("the %s record of a newer version: found %v, of format %d, %v", name, got.Found, got.Record.Format, err)
	}
}

func checkNewerRefused(e *env) {
	for name, a := range e.newer() {
		for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
			_, err := e.s.Claim(e.ctx, a.taking(take))
			e.is(name+": Claim", err, driver.ErrNewerRecord)
		}
		e.is(name+": Renew", a.renew(a.renewal()), driver.ErrNewerRecord)
		e.is(name+": SaveStep", a.step(a.stepping("mail", driver.StepOpen)), driver.ErrNewerRecord)
		e.is(name+": Complete", a.complete("done"), driver.ErrNewerRecord)
		for _, req := range []driver.ReleaseRequest{a.releasing(driver.StateReleased), byNonce(a.req)} {
			_, err := e.s.Release(e.ctx, req)
			e.is(name+": Release", err, driver.ErrNewerRecord)
		}
		_, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: 100})
		e.ok("Purge", err)
		a.leftAlone(name)
	}
}

// checkNewerPurge: this version does not know how long a newer one keeps a result. Such a record takes no place of
// those to be purged.
func checkNewerPurge(e *env) {
	if e.h.Newer == nil {
		e.Logf("nothing writes as a newer version does (Harness.Newer is nil)")
		return
	}
	const newer = 5
	for i := range newer + 3 {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short, Remember: long}
		a := e.claimed(req)
		a.stepped("mail", driver.StepDone)
		a.completed("done")
		if i < newer {
			e.h.Newer(req.ID)
		}
		e.pass(short)
	}
	got := driver.PurgeResult{More: true}
	for calls := 0; got.More; calls++ {
		res, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: 2})
		e.ok("Purge", err)
		got = driver.PurgeResult{Results: got.Results + res.Results, Records: got.Records + res.Records, More: res.More}
		if calls > 4*newer {
			e.Fatalf("a purge beside %d results of a newer version does not come to an end", newer)
		}
	}
	if got.Results != 3 || got.Records != 0 {
		e.Errorf("purged %+v, want the 3 results of this version", got)
	}
}

// checkNewerKept deletes a tenant's records while versions change: a record of the newer version may be a live
// claim. It remains, no deletion goes on for ever because of it, and the caller gets an error.
func checkNewerKept(e *env) {
	newer := e.newer()
	for range 5 {
		e.claimed(claimReq(e.key())).completed("done")
	}
	got, err := e.forget(e.scope, 10)
	if got.Records != 5 || got.Live {
		e.Errorf("%+v were deleted, want the 5 of this version", got)
	}
	if len(newer) > 0 {
		e.is("DeleteScope beside what a newer version has written", err, driver.ErrNewerRecord)
	} else {
		e.ok("DeleteScope", err)
	}
	for name, a := range newer {
		a.leftAlone(name)
	}
}

// checkNewerListed: such records must be listed, with or without their scope, so that an operator finds them.
func checkNewerListed(e *env) {
	newer := e.newer()
	for _, req := range []driver.ListRequest{{Steps: true}, {Scope: e.scope, Steps: true}, {States: []driver.State{0}}} {
		scope := req.Scope
		page, err := e.s.(driver.Lister).List(e.ctx, req)
		e.ok("List", err)
		for name, a := range newer {
			if !slices.ContainsFunc(page.Records, func(r driver.Record) bool { return r.ID == a.req.ID && r.Format == driver.FormatVersion+1 }) {
				e.Errorf("the list of the scope %q has no %s record of a newer version", scope, name)
			}
		}
	}
}

// checkNewerCounted: their state is unknown, and a monitor must see that.
func checkNewerCounted(e *env) {
	newer := e.newer()
	e.claimed(claimReq(e.key())).completed("done")
	h, err := e.s.(driver.HealthChecker).Health(e.ctx, driver.HealthRequest{})
	e.ok("Health", err)
	got := [5]int64{h.Claimed, h.Abandoned, h.Released, h.Completed, h.Unreadable}
	if want := [5]int64{3: 1, 4: int64(len(newer))}; got != want || !h.OldestAbandoned.IsZero() {
		e.Errorf("claimed, abandoned, released, completed and unreadable are counted %v, the oldest abandoned has the time %v; want %v and none", got, h.OldestAbandoned, want)
	}
}
