package drivertest

import (
	"fmt"
	"sync"

	"github.com/everonce/everonce/driver"
)

// purgeChecks test what may be removed, and what must not be (rule 13).
func purgeChecks() []check {
	return []check{
		{name: "Rule13/NothingUnsettledIsEverRemoved", run: checkUnsettledStay},
		{name: "Rule13/UnsettledExpireOnlyWhereAsked", run: checkUnsettledExpire},
		{name: "Rule13/RenewalsMoveTheRemoval", run: func(e *env) {
			req := claimReq(e.key())
			req.ExpireUnsettled = true
			a := e.claimed(req)
			first := e.get(a.key()).PurgeAt
			e.pass(short)
			e.is("Renew", a.renew(a.renewal()), nil)
			second := e.get(a.key()).PurgeAt
			e.pass(short)
			a.stepped("mail", driver.StepOpen)
			third := e.get(a.key()).PurgeAt
			if !second.After(first) || !third.After(second) {
				e.Errorf("the removal is at %v, after a renewal %v, after a step %v; want growth", first, second, third)
			}
		}},
		{name: "Rule13/ALiveClaimIsNeverGone", run: func(e *env) {
			for _, write := range []func(*attempt){
				func(*attempt) {},
				func(a *attempt) { e.is("Renew", a.renew(a.renewal()), nil) },
				func(a *attempt) { a.stepped("mail", driver.StepOpen) },
				func(a *attempt) {
					a.req.Lifetime = forLong
					a.completed("done")
				},
			} {
				req := claimReq(e.key())
				req.ExpireUnsettled = true
				req.Lifetime = driver.Lifetime{Retention: short}
				a := e.claimed(req)
				e.pass(short)
				e.purge()
				e.decided(a.taking(driver.TakeAbandoned), driver.DecideInProgress)
				write(a)
				e.pass(short)
				e.purge()
				e.get(a.key())
			}
		}},
		{name: "Rule13/ResultsGoAtRetentionRecordsAfterRemember", run: checkResultsGo},
		{name: "Rule13/PurgeIsBounded", run: checkPurgeBounded},
		{name: "Rule13/AGoneRecordIsAbsent", run: func(e *env) {
			req := claimReq(e.key())
			req.Lifetime = driver.Lifetime{Retention: short}
			a := e.claimed(req)
			a.stepped("mail", driver.StepDone)
			a.completed("done")
			e.pass(short)
			e.absent(a.key())
			settle := a.taking(driver.TakeToSettle)
			e.decided(settle, driver.DecideAbsent)
			other := a.taking(driver.TakeNone)
			other.Fingerprint = fingerprintB // it is new: nothing to mismatch
			b := e.claimed(other)
			want := b.rec
			want.Attempt, want.Steps, want.Result, want.LastError, want.Fingerprint = 1, nil, driver.SavedResult{}, "", fingerprintB
			want.CreatedAt, want.Previous = want.UpdatedAt, driver.Previous{}
			e.same("the new record", e.get(a.key()), want)
			b.stepped("mail", driver.StepOpen)
			if s := e.get(a.key()).Steps; len(s) != 1 || s[0].State != driver.StepOpen {
				e.Errorf("the new record has a step of the old one: %+v", s)
			}
		}},
		{name: "Rule13/AReclaimedKeySurvivesAPurge", run: checkReclaimed},
		{name: "Rule13/ALateCompletionSurvivesAPurge", run: checkCompletionMeetsPurge},
	}
}

func checkUnsettledStay(e *env) {
	var kept []*attempt
	for range 2 {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short}
		a := e.claimed(req)
		a.stepped("mail", driver.StepOpen)
		kept = append(kept, a)
	}
	kept[0].lapse()
	kept[1].released(driver.StateAbandoned)
	released := e.claimed(claimReq(e.key()))
	released.stepped("mail", driver.StepDone)
	released.released(driver.StateReleased)
	e.pass(4 * short)
	e.purge()
	if again := e.claimed(released.taking(driver.TakeNone)); again.rec.Attempt != 2 || len(again.rec.Steps) != 1 {
		e.Errorf("after a purge a released record is claimed as attempt %d with %d steps, want 2 and 1: its lifetime is not over", again.rec.Attempt, len(again.rec.Steps))
	}
	for _, a := range kept {
		res := e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned)
		if len(res.Record.Steps) != 1 {
			e.Errorf("the abandoned record has lost its step")
		}
		if !res.Record.PurgeAt.IsZero() {
			e.Errorf("the abandoned record is to be removed at %v, want never", res.Record.PurgeAt)
		}
	}
}

func checkUnsettledExpire(e *env) {
	kept := e.claimed(claimReq(e.key()))
	kept.released(driver.StateAbandoned)
	for i, req := range []driver.ClaimRequest{claimReq(e.key()), kept.taking(driver.TakeAbandoned)} { // of a process that dies at once
		req.Lifetime, req.ExpireUnsettled, req.Lease = driver.Lifetime{Retention: short}, true, short
		a := e.claimed(req)
		e.pass(short)
		e.absent(a.key())
		if got := e.purge(); got.Records != 1 && !e.caps.RemovesByItself {
			e.Errorf("claim %d: %d records were purged, want 1", i, got.Records)
		}
	}
	for i, end := range []func(a *attempt){
		func(a *attempt) { a.lapse() },
		func(a *attempt) { a.released(driver.StateAbandoned) },
		func(a *attempt) { a.released(driver.StateReleased) },
	} {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short}
		req.ExpireUnsettled = true
		a := e.claimed(req)
		end(a)
		e.pass(short)
		e.absent(a.key())
		if got := e.purge(); got.Records != 1 && !e.caps.RemovesByItself {
			e.Errorf("case %d: %d records were purged, want 1", i, got.Records)
		}
		e.claimed(claimReq(a.key()))
	}
}

func checkResultsGo(e *env) {
	done := e.claimed(claimReq(e.key()))
	done.stepped("mail", driver.StepDone)
	done.req.Lifetime = driver.Lifetime{Retention: short, Remember: long}
	done.completed("done")
	refused := e.claimed(claimReq(e.key()))
	refusal := refused.completion("")
	refusal.Result = driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"declined"}`), Summary: []byte("declined")}
	refusal.Lifetime = done.req.Lifetime
	if _, err := e.s.Complete(e.ctx, refusal); err != nil {
		e.Fatalf("Complete with a refusal: %v", err)
	}
	bare := e.claimed(claimReq(e.key())) // of which there is nothing to let go but its steps
	bare.stepped("mail", driver.StepDone)
	elided := bare.completion("")
	elided.Result, elided.Lifetime = driver.SavedResult{Kind: driver.ResultElided}, done.req.Lifetime
	if _, err := e.s.Complete(e.ctx, elided); err != nil {
		e.Fatalf("Complete without a result: %v", err)
	}
	keep := e.claimed(claimReq(e.key()))
	keep.stepped("mail", driver.StepDone)
	keep.completed("kept")
	before := e.get(keep.key())
	if got := e.purge(); got.Results+got.Records != 0 && e.h.Advance != nil {
		e.Errorf("purged %+v before anything was over, want nothing", got)
	}
	e.pass(short)
	e.decided(done.taking(driver.TakeNone), driver.DecideExpired)
	checkExpiredRefusal(e, refused)
	e.purge()
	checkExpiredRefusal(e, refused)
	if n := len(e.get(bare.key()).Steps); n > 0 {
		e.Errorf("after the retention there are %d steps of an operation whose result was not kept, want none", n)
	}
	rec := e.get(done.key())
	if len(rec.Result.Data) > 0 || len(rec.Steps) > 0 {
		e.Errorf("after the retention there are %d bytes and %d steps, want none", len(rec.Result.Data), len(rec.Steps))
	}
	if rec.Result.Kind != driver.ResultValue || string(rec.Result.Summary) != "summary" {
		e.Errorf("after the retention the result is %v with the summary %q, want both kept", rec.Result.Kind, rec.Result.Summary)
	}
	if rec.State != driver.StateCompleted || rec.CompletedAt.IsZero() || rec.Token != done.rec.Token {
		e.Errorf("the tombstone is %v of %v", rec.State, rec.CompletedAt)
	}
	res := e.decided(done.taking(driver.TakeForced), driver.DecideExpired)
	if string(res.Record.Result.Summary) != "summary" {
		e.Errorf("an expired duplicate has the summary %q", res.Record.Result.Summary)
	}
	e.same("the record that was not due", e.get(keep.key()), before)
	if got := e.purge(); got.Results+got.Records != 0 {
		e.Errorf("purged again: %+v, want nothing", got)
	}
}

// checkExpiredRefusal: what was refused is not taken for done, when how it was refused is kept no longer.
func checkExpiredRefusal(e *env, refused *attempt) {
	e.Helper()
	brief, err := e.s.Get(e.ctx, driver.GetRequest{ID: refused.req.ID, Brief: true})
	if err != nil || !brief.Found {
		e.Fatalf("Get, brief: %v, found %v", err, brief.Found)
	}
	claim := e.decided(refused.taking(driver.TakeNone), driver.DecideExpired)
	for how, res := range map[string]driver.SavedResult{"the claim": claim.Record.Result, "a brief look": brief.Record.Result} {
		if res.Kind != driver.ResultFailure || string(res.Summary) != "declined" {
			e.Errorf("%s returns %v and the summary %q for an expired failure, want its kind and summary", how, res.Kind, res.Summary)
		}
	}
}

func checkPurgeBounded(e *env) {
	const n = 10
	for _, limit := range []int{3, 0} { // 0 is the store's own bound
		for range n {
			req := claimReq(e.key())
			req.Lifetime = driver.Lifetime{Retention: short}
			e.claimed(req).completed("done")
		}
		kept := e.claimed(claimReq(e.key()))
		e.pass(short)
		total := 0
		for more := true; more; {
			res, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: limit})
			if err != nil {
				e.Fatalf("Purge: %v", err)
			}
			if done := res.Results + res.Records; done > limit && limit > 0 || done == 0 && res.More {
				e.Fatalf("purged %d at a time, want at most %d, and something while there is more", done, limit)
			}
			if total += res.Records; total < n && !res.More && !e.caps.RemovesByItself {
				e.Fatalf("no more after %d of %d records", total, n)
			}
			more = res.More
		}
		if total != n && !e.caps.RemovesByItself {
			e.Errorf("%d records were purged, want %d", total, n)
		}
		kept.completed("done")
	}
}

// checkReclaimed lets purges race with claims of keys whose records are gone: a claim that was granted
// stands, whatever a purge had seen before it.
func checkReclaimed(e *env) {
	for range 5 {
		var gone []*attempt
		for range 8 {
			req := claimReq(e.key())
			req.Lifetime = driver.Lifetime{Retention: short}
			a := e.claimed(req)
			a.completed("done")
			gone = append(gone, a)
		}
		e.pass(short)
		granted := make([]*attempt, len(gone))
		over := make(chan struct{})
		var purges sync.WaitGroup
		for range 2 {
			purges.Go(func() {
				if _, err := e.h.Peer.Purge(e.ctx, driver.PurgeRequest{Limit: 1000}); err != nil {
					e.Errorf("Purge: %v", err)
				}
				if _, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: 1000}); err != nil {
					e.Errorf("Purge: %v", err)
				}
			})
		}
		go func() { purges.Wait(); close(over) }()
		each(len(gone), func(i int) {
			req := claimReq(gone[i].key())
			res, err := e.claimBeside(over, req)
			if err != nil || res.Decision != driver.DecideClaimed {
				e.Errorf("Claim of a gone key under a purge: %v, %v; want claimed", res.Decision, err)
				return
			}
			granted[i] = attemptOf(e, req, res)
		})
		<-over
		for i, a := range granted {
			if a == nil {
				return
			}
			if !gone[i].live(a) {
				e.Fatalf("a purge removed a record that had been claimed anew")
			}
			a.completed(fmt.Sprint("again ", i))
		}
	}
}

// claimBeside claims what a removal may hold just now. Until that is over, a store that lets no claim wait says
// that it is in progress.
func (e *env) claimBeside(over <-chan struct{}, req driver.ClaimRequest) (driver.ClaimResult, error) {
	for last := false; ; {
		select {
		case <-over:
			last = true
		default:
		}
		if res, err := e.s.Claim(e.ctx, req); last || err != nil || res.Decision != driver.DecideInProgress {
			return res, err
		}
	}
}

// checkCompletionMeetsPurge lets purges race with completions of attempts whose records are gone by time: one that was
// accepted stands, whatever a purge had seen before it.
func checkCompletionMeetsPurge(e *env) {
	for range 5 {
		late := make([]*attempt, 8)
		for i := range late {
			req := claimReq(e.key())
			req.Lifetime, req.ExpireUnsettled = driver.Lifetime{Retention: short}, true
			late[i] = e.claimed(req)
			late[i].lapse()
			late[i].req.Lifetime = forLong
		}
		e.pass(short)
		errs := make([]error, len(late)+2)
		each(len(errs), func(i int) {
			if i < len(late) {
				_, errs[i] = e.s.Complete(e.ctx, late[i].completion("late"))
			} else {
				_, errs[i] = e.handle(i).Purge(e.ctx, driver.PurgeRequest{Limit: 1000})
			}
		})
		for i, a := range late {
			if errs[i] != nil {
				e.is("Complete of a record that is gone, under a purge", errs[i], driver.ErrLeaseLost)
				e.absent(a.key())
				continue
			}
			if rec := e.look(a.req.ID); !rec.Found || rec.Record.State != driver.StateCompleted {
				e.Fatalf("a purge removed a result that had been accepted")
			}
			e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		}
		for _, err := range errs[len(late):] {
			e.ok("Purge", err)
		}
	}
}

// live reports whether the record belongs to the new attempt, with a higher token than the old.
func (a *attempt) live(b *attempt) bool {
	a.e.Helper()
	res := a.e.look(b.req.ID)
	if !res.Found || res.Record.Nonce != b.req.Nonce || res.Record.State != driver.StateClaimed {
		return false
	}
	a.e.grew(a, b)
	again := a.e.claim(b.taking(driver.TakeNone))
	return again.Decision == driver.DecideInProgress
}
