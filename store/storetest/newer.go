package storetest

import (
	"errors"
	"slices"

	"github.com/everonce/everonce"
)

// newerChecks are of what a newer version has written: this one does not judge it, and leaves it as it is.
func newerChecks() []check {
	return []check{
		{name: "NewerVersion/ItsRecordsAreRefused", run: checkNewerRefused},
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

// leftAlone checks that the record is still that of a newer version.
func (a *attempt) leftAlone(name string) {
	a.e.Helper()
	got, err := a.e.s.Get(a.e.ctx, everonce.GetRequest{ID: a.req.ID})
	if !errors.Is(err, everonce.ErrNewerRecord) && (err != nil || !got.Found || got.Record.Format != everonce.FormatVersion+1) {
		a.e.Errorf("the %s record of a newer version: found %v, of format %d, %v", name, got.Found, got.Record.Format, err)
	}
}

func checkNewerRefused(e *env) {
	for name, a := range e.newer() {
		for _, take := range []everonce.TakeOver{everonce.TakeNone, everonce.TakeAbandoned, everonce.TakeToSettle, everonce.TakeForced} {
			_, err := e.s.Claim(e.ctx, a.taking(take))
			e.is(name+": Claim", err, everonce.ErrNewerRecord)
		}
		e.is(name+": Renew", a.renew(a.renewal()), everonce.ErrNewerRecord)
		e.is(name+": SaveStep", a.step(a.stepping("mail", everonce.StepOpen)), everonce.ErrNewerRecord)
		e.is(name+": Complete", a.complete("done"), everonce.ErrNewerRecord)
		for _, req := range []everonce.ReleaseRequest{a.releasing(everonce.StateReleased), byNonce(a.req)} {
			_, err := e.s.Release(e.ctx, req)
			e.is(name+": Release", err, everonce.ErrNewerRecord)
		}
		_, err := e.s.Purge(e.ctx, everonce.PurgeRequest{Limit: 100})
		e.ok("Purge", err)
		a.leftAlone(name)
	}
}

// checkNewerKept forgets a tenant while versions change: what the newer one wrote may be a live claim. That it stays makes no
// deletion go on for ever.
func checkNewerKept(e *env) {
	newer := e.newer()
	for range 5 {
		e.claimed(claimReq(e.key())).completed("done")
	}
	if got := e.deleteScope(e.scope); got != 5 {
		e.Errorf("%d records were deleted, want the 5 of this version", got)
	}
	for name, a := range newer {
		a.leftAlone(name)
	}
}

// checkNewerListed: they must be found to be known of, with or without their scope.
func checkNewerListed(e *env) {
	newer := e.newer()
	for _, scope := range []everonce.Scope{"", e.scope} {
		page, err := e.s.(everonce.Lister).List(e.ctx, everonce.ListRequest{Scope: scope, Steps: true})
		e.ok("List", err)
		for name, a := range newer {
			if !slices.ContainsFunc(page.Records, func(r everonce.Record) bool { return r.ID == a.req.ID && r.Format == everonce.FormatVersion+1 }) {
				e.Errorf("the list of the scope %q has no %s record of a newer version", scope, name)
			}
		}
	}
}

// checkNewerCounted: nobody knows what state they are in, which a monitor has to be told.
func checkNewerCounted(e *env) {
	newer := e.newer()
	e.claimed(claimReq(e.key())).completed("done")
	h, err := e.s.(everonce.HealthChecker).Health(e.ctx)
	e.ok("Health", err)
	got := [5]int64{h.Claimed, h.Abandoned, h.Released, h.Completed, h.Unreadable}
	if want := [5]int64{3: 1, 4: int64(len(newer))}; got != want || !h.OldestAbandoned.IsZero() {
		e.Errorf("claimed, abandoned, released, completed and unreadable are counted %v, the oldest abandoned is of %v; want %v and none", got, h.OldestAbandoned, want)
	}
}
