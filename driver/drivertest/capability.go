package drivertest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// capabilityChecks test the optional powers.
func capabilityChecks() []check {
	return []check{
		{name: "Capabilities/AsDeclared", run: checkDeclared},
		{name: "Lister/PagesInTheOrderOfIDs", run: checkPages, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "Lister/SelectsByScope", run: checkListScope, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "Lister/SelectsByState", run: checkListStates, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "Lister/SelectsByKey", run: checkListKey, needs: func(c Capabilities) bool { return c.Lister }},
		{name: "ScopeDeleter/DeletesATenantAndNoOther", run: checkDeleteScope, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
		{name: "ScopeDeleter/ForgetsAPartOfATenantAndNoMore", run: checkDeletePart, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
		{name: "ScopeDeleter/SparesAClaimThatComesMeanwhile", run: checkDeleteMeets, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
		{name: "ScopeDeleter/IsBounded", run: checkDeleteBounded, needs: func(c Capabilities) bool { return c.ScopeDeleter }},
		{name: "HealthChecker/Counts", run: checkHealth, needs: func(c Capabilities) bool { return c.HealthChecker }},
		{name: "WriteChecker/LeavesNoRecord", run: checkWrites, needs: func(c Capabilities) bool { return c.WriteChecker }},
		{name: "IdentityKeeper/KeepsTheFirst", run: checkIdentity, needs: func(c Capabilities) bool { return c.IdentityKeeper }},
		{name: "IdentityKeeper/ReadsTheSavedValue", run: checkReadIdentity, needs: func(c Capabilities) bool { return c.IdentityKeeper }},
		{name: "Recaller/OnlyResultsThatAClaimWouldReplay", run: checkRecall, needs: func(c Capabilities) bool { return c.Recaller }},
		{name: "ChangeWaiter/WordComesWhenAnAttemptEnds", run: checkWatch, needs: func(c Capabilities) bool { return c.ChangeWaiter }},
		{name: "ChangeWaiter/AWaiterOfAnotherProcessIsWoken", run: checkWatchWakes, needs: func(c Capabilities) bool { return c.ChangeWaiter }},
		{name: "IdentityKeeper/NoSecretIsAnIdentityToo", run: checkNoIdentity, needs: func(c Capabilities) bool { return c.IdentityKeeper }},
	}
}

func checkDeclared(e *env) {
	_, lister := driver.PowerOf[driver.Lister](e.s)
	_, deleter := driver.PowerOf[driver.ScopeDeleter](e.s)
	_, health := driver.PowerOf[driver.HealthChecker](e.s)
	_, writes := driver.PowerOf[driver.WriteChecker](e.s)
	_, identity := driver.PowerOf[driver.IdentityKeeper](e.s)
	_, recaller := driver.PowerOf[driver.Recaller](e.s)
	_, watcher := driver.PowerOf[driver.ChangeWaiter](e.s)
	for _, c := range []struct {
		name      string
		has, says bool
	}{
		{"Lister", lister, e.caps.Lister},
		{"ScopeDeleter", deleter, e.caps.ScopeDeleter},
		{"HealthChecker", health, e.caps.HealthChecker},
		{"WriteChecker", writes, e.caps.WriteChecker},
		{"IdentityKeeper", identity, e.caps.IdentityKeeper},
		{"Recaller", recaller, e.caps.Recaller},
		{"ChangeWaiter", watcher, e.caps.ChangeWaiter},
	} {
		if c.has != c.says {
			e.Errorf("%s: the store has it: %v, Capabilities declare it: %v", c.name, c.has, c.says)
		}
	}
}

// listed reads all pages.
func (e *env) listed(req driver.ListRequest) (recs []driver.Record) {
	e.Helper()
	for {
		res, err := e.s.(driver.Lister).List(e.ctx, req)
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if req.Limit > 0 && len(res.Records) > req.Limit {
			e.Fatalf("a page has %d records, the limit is %d", len(res.Records), req.Limit)
		}
		recs = append(recs, res.Records...)
		if res.Next == (driver.RecordID{}) {
			return recs
		}
		if bytes.Compare(res.Next[:], req.After[:]) <= 0 {
			e.Fatalf("a page does not go on")
		}
		req.After = res.Next
	}
}

func checkPages(e *env) {
	const n = 25
	want := make([]driver.RecordID, 0, n)
	for i := range n {
		a := e.claimed(claimReq(everonce.Key{Scope: driver.ScopeOf(string(e.scope), fmt.Sprint(i%3)), ID: fmt.Sprint(i)}))
		a.stepped("mail", driver.StepDone)
		if i%2 == 0 {
			a.completed("done")
		}
		want = append(want, a.req.ID)
	}
	slices.SortFunc(want, func(a, b driver.RecordID) int { return bytes.Compare(a[:], b[:]) })
	for _, limit := range []int{0, 1, 7, 24, 25, 26, 1000} {
		for _, steps := range []bool{false, true} {
			recs := e.listed(driver.ListRequest{Scope: e.scope, Limit: limit, Steps: steps})
			got := make([]driver.RecordID, 0, n)
			for _, r := range recs {
				got = append(got, r.ID)
				if len(r.Result.Data) > 0 {
					e.Errorf("a listed record has its result")
				}
				if has := len(r.Steps) == 1; has != steps {
					e.Errorf("listed with steps: %v, there are %d", steps, len(r.Steps))
				}
				full := e.look(r.ID).Record
				full.Result, full.Steps, r.Result, r.Steps = driver.SavedResult{}, nil, driver.SavedResult{}, nil
				e.same("a listed record", r, full)
			}
			if !slices.Equal(got, want) {
				e.Errorf("in pages of %d: %d records, want all %d in the order of IDs", limit, len(got), n)
			}
		}
	}
}

func checkListScope(e *env) {
	tenant := string(e.scope)
	add := func(parts ...string) driver.RecordID {
		a := e.claimed(claimReq(everonce.Key{Scope: driver.ScopeOf(parts...), ID: "x"}))
		return a.req.ID
	}
	whole := add(tenant)
	charge := add(tenant, "charge")
	card := add(tenant, "charge", "card")
	other := add(tenant, "charges")
	wild := add(tenant, "charg_")
	stranger := add(tenant + "x")
	for _, c := range []struct {
		scope driver.Scope
		want  []driver.RecordID
	}{
		{driver.ScopeOf(tenant), []driver.RecordID{whole, charge, card, other, wild}},
		{driver.ScopeOf(tenant, "charge"), []driver.RecordID{charge, card}},
		{driver.ScopeOf(tenant, "charge", "card"), []driver.RecordID{card}},
		{driver.ScopeOf(tenant, "charg_"), []driver.RecordID{wild}},
		{driver.ScopeOf(tenant, "charge%"), nil},
		{driver.ScopeOf(tenant + "x"), []driver.RecordID{stranger}},
		{"", []driver.RecordID{whole, charge, card, other, wild, stranger}},
	} {
		var got []driver.RecordID
		for _, r := range e.listed(driver.ListRequest{Scope: c.scope, Limit: 2}) {
			got = append(got, r.ID)
		}
		slices.SortFunc(c.want, func(a, b driver.RecordID) int { return bytes.Compare(a[:], b[:]) })
		if !slices.Equal(got, c.want) {
			e.Errorf("scope %q lists %d records, want %d", c.scope, len(got), len(c.want))
		}
	}
}

func checkListStates(e *env) {
	states := e.states()
	byState := map[driver.State][]string{
		driver.StateClaimed: {"claimed"}, driver.StateReleased: {"released"}, driver.StateAbandoned: {"abandoned", "lapsed"},
		driver.StateCompleted: {"completed"}, driver.StateTombstone: {"tombstone"},
	}
	gone := claimReq(e.key())
	gone.Lifetime = driver.Lifetime{Retention: short}
	e.claimed(gone).completed("done")
	e.pass(short)
	all := 0
	for state, names := range byState {
		recs := e.listed(driver.ListRequest{Scope: e.scope, States: []driver.State{state}, Limit: 1})
		all += len(recs)
		if len(recs) != len(names) {
			e.Errorf("%v lists %d records, want %d", state, len(recs), len(names))
		}
		for _, r := range recs {
			if !slices.ContainsFunc(names, func(n string) bool { return states[n].req.ID == r.ID }) {
				e.Errorf("%v lists a record that is %v", state, r.State)
			}
		}
	}
	some := e.listed(driver.ListRequest{Scope: e.scope, States: []driver.State{driver.StateAbandoned, driver.StateTombstone}})
	if all != len(states) || len(some) != 3 {
		e.Errorf("%d records of all states, %d abandoned or expired; want %d and 3", all, len(some), len(states))
	}
}

func (e *env) deleteScope(scope driver.Scope) (n int) {
	e.Helper()
	res, err := e.forget(scope, 100)
	if err != nil {
		e.Fatalf("DeleteScope: %v", err)
	}
	return res.Records
}

func checkDeleteScope(e *env) {
	inside := e.states() // one of them is live
	tenant := e.scope
	e.scope = driver.ScopeOf(string(tenant), "route")
	deeper := e.states()
	e.scope = tenant + "x"
	outside := e.states()
	before := make(map[string]driver.Record)
	for name, a := range outside {
		before[name] = e.get(a.key())
	}
	if got, err := e.forget(tenant, 2*len(inside)); got.Records != 2*(len(inside)-1) || !got.Live || err != nil {
		e.Errorf("deleted %+v, %v; want %d: all but the live claims, and that there are some", got, err, 2*(len(inside)-1))
	}
	for _, states := range []map[string]*attempt{inside, deeper} {
		for name, a := range states {
			if name == "claimed" {
				a.completed("done")
				continue
			}
			e.absent(a.key())
			b := e.claimed(a.taking(driver.TakeNone))
			if b.rec.Attempt != 1 || len(b.rec.Steps) != 0 {
				e.Errorf("%s: the claim after the deletion is attempt %d with %d steps, want a new record", name, b.rec.Attempt, len(b.rec.Steps))
			}
			e.grew(a, b)
			e.is(name+": Complete by the attempt that was forgotten", a.complete("ghost"), driver.ErrLeaseLost)
		}
	}
	for name, a := range outside {
		e.same("the "+name+" record of another tenant", e.get(a.key()), before[name])
	}
}

// checkDeletePart deletes one scope of a tenant: not the tenant's others, nor one whose name begins alike or is
// like a pattern of it.
func checkDeletePart(e *env) {
	tenant := string(e.scope)
	kept := make(map[driver.Scope]*attempt)
	add := func(parts ...string) (driver.Scope, *attempt) {
		scope := driver.ScopeOf(parts...)
		a := e.claimed(claimReq(everonce.Key{Scope: scope, ID: "x"}))
		a.completed("done")
		return scope, a
	}
	for _, parts := range [][]string{{tenant}, {tenant, "charge"}, {tenant, "charges"}, {tenant, "charge_"}, {tenant, "charg_e"}, {tenant, "Charge"}, {tenant + "x", "charg_"}} {
		scope, a := add(parts...)
		kept[scope] = a
	}
	part, inside := add(tenant, "charg_")
	_, deeper := add(tenant, "charg_", "card")
	if got := e.deleteScope(part); got != 2 {
		e.Errorf("%d records were deleted, want the 2 of the scope", got)
	}
	e.absent(inside.key())
	e.absent(deeper.key())
	for scope, a := range kept {
		if res := e.claim(a.taking(driver.TakeNone)); res.Decision != driver.DecideReplay {
			e.Errorf("after the deletion of %q, a duplicate in %q is %v, want replay: its operation is forgotten, and runs again", part, scope, res.Decision)
		}
	}
}

// checkDeleteMeets lets deletions race with claims of released keys: a claim that was granted is live, and stands.
// In the end each is granted.
func checkDeleteMeets(e *env) {
	for range 5 {
		released := make([]*attempt, 8)
		for i := range released {
			released[i] = e.claimed(claimReq(e.key()))
			released[i].released(driver.StateReleased)
		}
		e.pass(short) // tokens grow by the clock, where a record is gone
		results := make([]driver.ClaimResult, len(released))
		errs := make([]error, len(released)+1)
		reqs := make([]driver.ClaimRequest, len(released))
		over := make(chan struct{})
		each(len(errs), func(i int) {
			if i < len(released) {
				reqs[i] = released[i].taking(driver.TakeNone)
				results[i], errs[i] = e.claimBeside(over, reqs[i])
			} else {
				defer close(over)
				_, errs[i] = e.h.Peer.(driver.ScopeDeleter).DeleteScope(e.ctx, driver.DeleteScopeRequest{Scope: e.scope, Limit: 100})
			}
		})
		for i, a := range released {
			if errs[i] != nil || results[i].Decision != driver.DecideClaimed {
				e.Fatalf("Claim under a deletion: %v, %v; want claimed", results[i].Decision, errs[i])
			}
			b := attemptOf(e, reqs[i], results[i])
			if !a.live(b) {
				e.Fatalf("a deletion removed a record that had been claimed meanwhile: another attempt runs beside it")
			}
			b.completed("done")
		}
		e.ok("DeleteScope", errs[len(released)])
	}
}

func checkDeleteBounded(e *env) {
	for range 5 {
		e.claimed(claimReq(e.key())).completed("done")
	}
	s := e.s.(driver.ScopeDeleter)
	for _, limit := range []int{0, 2} {
		res, err := s.DeleteScope(e.ctx, driver.DeleteScopeRequest{Limit: limit})
		if e.is("DeleteScope without a scope", err, driver.ErrInvalidKey); res.Records != 0 || res.More {
			e.Errorf("without a scope %d records were deleted: whose?", res.Records)
		}
	}
	if got := e.deleteScope(e.scope); got != 5 {
		e.Errorf("%d records were deleted, want 5", got)
	}
	e.claimed(claimReq(e.key())).completed("done")
	if res, err := s.DeleteScope(e.ctx, driver.DeleteScopeRequest{Scope: e.scope}); res != (driver.DeleteScopeResult{Records: 1}) || err != nil {
		e.Errorf("without a limit: %+v, %v, want the one record there is", res, err)
	}
}

func checkHealth(e *env) {
	health := func() driver.HealthResult {
		h, err := e.s.(driver.HealthChecker).Health(e.ctx, driver.HealthRequest{})
		if err != nil {
			e.Fatalf("Health: %v", err)
		}
		return h
	}
	empty := health()
	if empty.Claimed+empty.Abandoned+empty.Released+empty.Completed != 0 || !empty.OldestAbandoned.IsZero() {
		e.Errorf("an empty store counts %+v", empty)
	}
	if len(empty.Notes) == 0 {
		e.Errorf("Health says nothing on durability")
	}
	e.states()
	second := e.states()
	second["claimed"].completed("done")
	gone := claimReq(e.key())
	gone.Lifetime = driver.Lifetime{Retention: short}
	e.claimed(gone).released(driver.StateReleased)
	e.pass(short)
	h := health()
	got := [4]int64{h.Claimed, h.Abandoned, h.Released, h.Completed}
	if want := [4]int64{1, 4, 2, 5}; got != want {
		e.Errorf("claimed, abandoned, released and completed are counted %v, want %v", got, want)
	}
	if h.OldestAbandoned.IsZero() || h.OldestAbandoned.After(h.Now) || h.Now.Before(normalTime(empty.Now)) {
		e.Errorf("the oldest abandoned record has the time %v, at %v", h.OldestAbandoned, h.Now)
	}
	var oldest time.Time
	for _, name := range []string{"lapsed", "abandoned"} {
		if at := e.get(second[name].key()).UpdatedAt; oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	if !h.OldestAbandoned.Before(oldest) && e.h.Advance == nil {
		e.Errorf("the oldest abandoned record has the time %v, but there is an older one", h.OldestAbandoned)
	}
}

func (e *env) keepIdentity(s driver.Store, check [32]byte) error {
	return errOf(s.(driver.IdentityKeeper).KeepIdentity(e.ctx, driver.KeepIdentityRequest{Check: check}))
}

func checkIdentity(e *env) {
	one, two := [32]byte{1}, [32]byte{2}
	keep := e.keepIdentity
	errs := make([]error, e.caps.Callers)
	each(len(errs), func(i int) {
		if i%2 == 0 {
			errs[i] = keep(e.s, one)
		} else {
			errs[i] = keep(e.h.Peer, two)
		}
	})
	var kept [2]int
	for i, err := range errs {
		if err == nil {
			kept[i%2]++
			continue
		}
		e.is("KeepIdentity", err, driver.ErrIdentity)
	}
	if kept[0] != 0 && kept[1] != 0 || kept[0]+kept[1] != len(errs)/2 {
		e.Errorf("of two identities at once, one was accepted %d times and the other %d", kept[0], kept[1])
	}
	winner, loser := one, two
	if kept[1] > 0 {
		winner, loser = two, one
	}
	e.is("KeepIdentity of the first", keep(e.h.Peer, winner), nil)
	e.is("KeepIdentity of another", keep(e.s, loser), driver.ErrIdentity)
	e.is("KeepIdentity of none", keep(e.s, [32]byte{}), driver.ErrIdentity)
}

// checkReadIdentity reads what the store is bound to, if it can be read: DoTx compares nothing else.
func checkReadIdentity(e *env) {
	read := func(when string, want [32]byte, is bool) {
		for _, s := range []driver.Store{e.s, e.h.Peer} {
			r, can := driver.PowerOf[driver.IdentityReader](s)
			if !can {
				continue
			}
			if kept, err := r.ReadIdentity(e.ctx, driver.ReadIdentityRequest{}); err != nil || kept.Bound != is || kept.Check != want {
				e.Errorf("%s, what is read is bound: %v, equal: %v, %v; want %v", when, kept.Bound, kept.Check == want, err, is)
			}
		}
	}
	read("before an identity is kept", [32]byte{}, false)
	e.is("KeepIdentity", e.keepIdentity(e.s, [32]byte{1}), nil)
	read("when one is kept", [32]byte{1}, true)
	e.is("KeepIdentity of another", e.keepIdentity(e.s, [32]byte{2}), driver.ErrIdentity)
	read("when another was refused", [32]byte{1}, true)
}

func checkNoIdentity(e *env) {
	e.is("KeepIdentity of none", e.keepIdentity(e.s, [32]byte{}), nil)
	e.is("KeepIdentity of none, again", e.keepIdentity(e.s, [32]byte{}), nil)
	e.is("KeepIdentity of one", e.keepIdentity(e.s, [32]byte{1}), driver.ErrIdentity)
}

// checkRecall recalls a record in every state: only a result that a claim would replay.
func checkRecall(e *env) {
	recall := func(id driver.RecordID) driver.RecallResult {
		res, err := e.s.(driver.Recaller).Recall(e.ctx, driver.RecallRequest{ID: id})
		e.ok("Recall", err)
		return res
	}
	if recall(claimReq(e.key()).ID).Found {
		e.Errorf("a key that was never used is recalled")
	}
	for name, a := range e.states() {
		got := recall(a.req.ID)
		if got.Found != (name == "completed") {
			e.Errorf("the %s record is recalled: %v", name, got.Found)
		}
		if !got.Found {
			continue
		}
		want := e.get(a.key())
		have := want
		have.Fingerprint, have.Result = got.Fingerprint, got.Result
		e.same("what is recalled", have, want)
	}
	gone := claimReq(e.key())
	gone.Lifetime = driver.Lifetime{Retention: short}
	e.claimed(gone).completed("done")
	e.pass(short)
	if recall(gone.ID).Found {
		e.Errorf("a gone record is recalled")
	}
}
