package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/driver"
)

// damageChecks test records with contents that no version writes: no call judges them, and they delay no other
// record.
func damageChecks() []check {
	return []check{
		{name: "Damage/IsNotTakenOver", run: checkDamageRefused},
		{name: "Damage/TheAttemptThatRunsMayEndIt", run: checkDamageEnded},
		{name: "Damage/APurgePassesItOver", run: checkDamagePurge, needs: func(c Capabilities) bool { return !c.RemovesByItself }},
		{name: "Damage/GoesWithItsTime", run: checkDamageGoes, needs: func(c Capabilities) bool { return !c.RemovesByItself }},
		{name: "Damage/IsListed", run: checkDamageListed, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "Damage/IsCountedApart", run: checkDamageCounted, needs: func(c Capabilities) bool { return c.HealthChecker }},
		{name: "Damage/AScopeIsNotForgottenInSilence", run: checkDamageDeleted, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
	}
}

// damaged returns records in every state, damaged in every way, by what they are.
func (e *env) damaged() map[string]*attempt {
	e.Helper()
	all := make(map[string]*attempt)
	for way, damage := range e.h.Damages {
		for state, a := range e.states() {
			damage(a.req.ID)
			all[state+", damaged by "+way] = a
		}
	}
	if len(all) == 0 {
		e.Logf("nothing damages a record (Harness.Damages is empty)")
	}
	return all
}

// unleased returns claims that may or may not be live, and that may be removed after their lifetime.
func (e *env) unleased(n int) []*attempt {
	e.Helper()
	if e.h.DamagedLease == nil {
		e.Logf("nothing damages a lease (Harness.DamagedLease is nil)")
		return nil
	}
	all := make([]*attempt, n)
	for i := range all {
		req := claimReq(e.key())
		req.ExpireUnsettled, req.Lease, req.Lifetime = true, short, driver.Lifetime{Retention: short}
		if e.caps.RemovesByItself {
			req.Lifetime = forLong
		}
		all[i] = e.claimed(req)
		e.h.DamagedLease(req.ID)
		all[i].req.Lease = long
	}
	return all
}

// stillDamaged checks that the record is unchanged.
func (a *attempt) stillDamaged(what string) {
	a.e.Helper()
	_, err := a.e.s.Get(a.e.ctx, driver.GetRequest{ID: a.req.ID})
	a.e.is(what+": Get", err, driver.ErrCorruptRecord)
}

func checkDamageRefused(e *env) {
	all := e.damaged()
	for i, a := range e.unleased(1) {
		all[fmt.Sprint("claimed, by a lease that cannot be read ", i)] = a
	}
	e.pass(short)
	for what, a := range all {
		for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
			_, err := e.s.Claim(e.ctx, a.taking(take))
			e.is(what+": Claim", err, driver.ErrCorruptRecord)
		}
		_, err := e.s.Release(e.ctx, byNonce(claimReq(a.key())))
		e.is(what+": Release by another's nonce", err, driver.ErrCorruptRecord)
		a.stillDamaged(what)
	}
}

// checkDamageEnded: no other attempt has the record. Renewing the lease repairs it.
func checkDamageEnded(e *env) {
	for i, a := range e.unleased(3) {
		a.req.Lifetime = forLong
		switch i {
		case 0:
			e.is("Renew", a.renew(a.renewal()), nil)
			e.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
		case 1:
			a.released(driver.StateReleased)
			e.claimed(a.taking(driver.TakeNone))
		case 2:
			a.completed("done")
			e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		}
	}
}

// checkDamagePurge: records that a purge must not remove take no place of those that it may, however many there
// are.
func checkDamagePurge(e *env) {
	const limit = 2
	var stays []*attempt
	results, records := 0, 0
	for range 4 { // one after the other, in the order in which they are due
		stays = append(stays, e.unleased(limit+1)...)
		gone := claimReq(e.key())
		gone.Lifetime = driver.Lifetime{Retention: short}
		e.claimed(gone).completed("done")
		records++
		over := claimReq(e.key())
		over.Lifetime = driver.Lifetime{Retention: short, Remember: long}
		a := e.claimed(over)
		a.stepped("mail", driver.StepDone)
		a.completed("done")
		results++
		e.pass(short)
	}
	most := 2 * (len(stays) + results + records)
	for round := range 2 {
		for calls, more := 0, true; more; calls++ {
			got, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: limit})
			e.ok("Purge", err)
			if got.Results+got.Records > limit {
				e.Errorf("purged %+v, the limit is %d", got, limit)
			}
			results, records, more = results-got.Results, records-got.Records, got.More
			if calls > most {
				e.Fatalf("a purge that may not remove %d records does not come to an end", len(stays))
			}
		}
		if results != 0 || records != 0 {
			e.Errorf("after round %d of a purge %d results and %d records are left that it was to remove, beside %d that it may not", round+1, results, records, len(stays))
		}
	}
	for _, a := range stays {
		a.stillDamaged("after a purge")
	}
}

// checkDamageGoes: a record that is over by a readable time is removed at that time, and its key is new. It is
// still found until a purge removes it.
func checkDamageGoes(e *env) {
	for way, damage := range e.h.Damages {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short}
		a := e.claimed(req)
		a.completed("done")
		damage(req.ID)
		e.pass(short)
		e.claimFails(a.taking(driver.TakeNone), driver.ErrCorruptRecord)
		if got := e.purge(); got.Records != 1 {
			e.Errorf("damaged by %s: %d records were purged, want 1", way, got.Records)
		}
		if b := e.claimed(a.taking(driver.TakeNone)); b.rec.Attempt != 1 {
			e.Errorf("damaged by %s: the key is claimed as attempt %d, want a new record", way, b.rec.Attempt)
		}
	}
}

// checkDamageListed: a damaged record must be listed, among all and alone, so that an operator finds it.
func checkDamageListed(e *env) {
	all := e.damaged()
	for i, a := range e.unleased(1) {
		all[fmt.Sprint("claimed, by a lease that cannot be read ", i)] = a
	}
	whole := e.states()
	for _, scope := range []driver.Scope{"", e.scope} {
		for _, states := range [][]driver.State{nil, {0}, {driver.StateAbandoned, 0}} {
			want := len(all)
			switch {
			case states == nil:
				want += len(whole)
			case len(states) > 1:
				want += 2 // one that is abandoned, and one that has lapsed
			}
			recs := e.listed(driver.ListRequest{Scope: scope, States: states, Limit: 4, Steps: true})
			if len(recs) != want {
				e.Errorf("the list of the scope %q, of the states %v, has %d records, want %d, of which %d are damaged", scope, states, len(recs), want, len(all))
			}
			for what, a := range all {
				at := slices.IndexFunc(recs, func(r driver.Record) bool { return r.ID == a.req.ID })
				if at < 0 || recs[at].StateAt(e.now()) != 0 {
					e.Errorf("the list of the scope %q, of the states %v, does not have what is %s, without a state", scope, states, what)
				}
			}
		}
	}
}

func checkDamageCounted(e *env) {
	unreadable := int64(len(e.damaged()) + len(e.unleased(1)))
	e.claimed(claimReq(e.key())).completed("done")
	h, err := e.s.(driver.HealthChecker).Health(e.ctx, driver.HealthRequest{})
	e.ok("Health", err)
	got := [5]int64{h.Claimed, h.Abandoned, h.Released, h.Completed, h.Unreadable}
	if want := [5]int64{3: 1, 4: unreadable}; got != want || !h.OldestAbandoned.IsZero() {
		e.Errorf("claimed, abandoned, released, completed and unreadable are counted %v, the oldest abandoned has the time %v; want %v and none", got, h.OldestAbandoned, want)
	}
}

// checkDamageDeleted deletes a tenant's records. A record that may be a live claim remains; a store may remove the
// others. If a record remains, the caller gets an error, but only after the others are removed.
func checkDamageDeleted(e *env) {
	all := e.damaged()
	unleased := e.unleased(5)
	for i := range 5 {
		a := e.claimed(claimReq(e.key()))
		a.completed("done")
		all[fmt.Sprint("done ", i)] = a
	}
	res, err := e.forget(e.scope, 2*(len(all)+len(unleased)))
	if len(unleased) > 0 {
		e.is("DeleteScope where claims may be live", err, driver.ErrCorruptRecord)
	}
	left := 0
	for what, a := range all {
		got, unread := e.s.Get(e.ctx, driver.GetRequest{ID: a.req.ID})
		switch {
		case errors.Is(unread, driver.ErrCorruptRecord):
			left++
		case unread != nil || got.Found:
			e.Errorf("what is %s: found %v, %v; want that it is forgotten", what, got.Found, unread)
		}
	}
	if left > 0 && !errors.Is(err, driver.ErrCorruptRecord) && !res.Live {
		e.Errorf("DeleteScope leaves %d damaged records, and says %+v, %v", left, res, err)
	}
	if want := len(all) - left; res.Records != want {
		e.Errorf("%d records were deleted, want %d", res.Records, want)
	}
	for _, a := range unleased {
		a.stillDamaged("after its tenant was forgotten")
	}
}

// forget deletes a scope, in at most so many calls, and returns the sum of the results, and the last error.
func (e *env) forget(scope driver.Scope, calls int) (sum driver.DeleteScopeResult, err error) {
	e.Helper()
	for range calls {
		res, err := e.s.(driver.ScopeDeleter).DeleteScope(e.ctx, driver.DeleteScopeRequest{Scope: scope, Limit: 2})
		if res.Records > 2 {
			e.Fatalf("deleted %d at a time, want at most 2", res.Records)
		}
		sum.Records, sum.Live = sum.Records+res.Records, res.Live
		if !res.More || err != nil {
			return sum, err
		}
	}
	e.Fatalf("after %d calls there are more records to delete", calls)
	return sum, nil
}
