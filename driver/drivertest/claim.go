package drivertest

import (
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// claimChecks test the claim: one atomic operation (rule 1), and who may take what over (1, 8, 14).
func claimChecks() []check {
	return []check{
		{name: "Rule01/NewKey", run: checkNewKey},
		{name: "Rule01/OneWinnerOfMany", run: func(e *env) {
			for range 10 {
				k := e.key()
				e.oneWinner(func() driver.ClaimRequest { return claimReq(k) }, 1)
			}
		}},
		{name: "Rule01/OneWinnerOverAReleasedRecord", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.released(driver.StateReleased)
			e.oneWinner(func() driver.ClaimRequest { return a.taking(driver.TakeNone) }, 2)
		}},
		{name: "Rule01/OneWinnerOfATakeover", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.lapse()
			e.oneWinner(func() driver.ClaimRequest { return a.taking(driver.TakeAbandoned) }, 2)
		}},
		{name: "Rule01/OneWinnerOverAGoneRecord", run: func(e *env) {
			req := claimReq(e.key())
			req.Lifetime = driver.Lifetime{Retention: short}
			a := e.claimed(req)
			a.released(driver.StateReleased)
			e.pass(short)
			e.oneWinner(func() driver.ClaimRequest { return claimReq(a.key()) }, 1)
		}},
		{name: "Rule01/ManyCallersOnOneKeyUntilDone", run: checkManyOnOne},
		{name: "Rule01/ManyCallersOnManyKeys", run: checkManyOnMany},
		{name: "Rule01/AbandonedIsUntouchedWithoutTakeOver", run: checkAbandonedUntouched},
		{name: "Rule01/TakeOverKeepsTheRecord", run: checkTakeOver},
		{name: "Rule08/MismatchComesBeforeEverythingElse", run: checkMismatch},
		{name: "Rule08/AnotherAlgIsNoMismatch", run: checkOtherAlg},
		{name: "Rule14/SettlingNeverInserts", run: func(e *env) {
			for _, take := range []driver.TakeOver{driver.TakeToSettle, driver.TakeForced} {
				req := claimReq(e.key())
				req.Take = take
				e.decided(req, driver.DecideAbsent)
				e.absent(everonce.Key{Scope: req.Scope, ID: req.Name})
			}
		}},
		{name: "Rule14/SettlingNeverClaimsAReleasedRecord", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			a.released(driver.StateReleased)
			before := e.get(a.key())
			for _, take := range []driver.TakeOver{driver.TakeToSettle, driver.TakeForced} {
				e.decided(a.taking(take), driver.DecideReleased)
			}
			e.same("the released record", e.get(a.key()), before)
		}},
		{name: "Rule14/ALiveClaimIsSettledOnlyByForce", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			e.decided(a.taking(driver.TakeToSettle), driver.DecideInProgress)
			b := e.claimed(a.taking(driver.TakeForced))
			if b.rec.Previous.State != driver.StateClaimed || b.rec.Token <= a.rec.Token {
				e.Errorf("by force: previous %v, token %d after %d; want claimed, and growth", b.rec.Previous.State, b.rec.Token, a.rec.Token)
			}
			e.is("Complete by the attempt that was ended", a.complete("late"), driver.ErrLeaseLost)
			b.completed("settled")
		}},
		{name: "Rule14/AnUnknownStepIsTakenOverOnlyToSettle", run: checkUnknownStep},
	}
}

func checkNewKey(e *env) {
	k := e.key()
	e.absent(k)
	req := claimReq(k)
	before := e.now()
	res := e.decided(req, driver.DecideClaimed)
	want := driver.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name, State: driver.StateClaimed, Token: res.Record.Token, Nonce: req.Nonce,
		Owner: req.Owner, Attempt: 1, LeaseUntil: res.Record.UpdatedAt.Add(req.Lease), Fingerprint: req.Fingerprint,
		Format: driver.FormatVersion, CreatedAt: res.Record.UpdatedAt, ClaimedAt: res.Record.UpdatedAt, UpdatedAt: res.Record.UpdatedAt,
	}
	e.same("the answer's record", res.Record, want)
	e.same("the record", e.get(k), want)
	if res.Record.Token <= 0 {
		e.Errorf("the token is %d, want a positive one", res.Record.Token)
	}
	if res.Record.UpdatedAt.Before(normalTime(before)) || res.Now.Before(normalTime(before)) {
		e.Errorf("claimed at %v, decided at %v; want not before %v", res.Record.UpdatedAt, res.Now, before)
	}
}

// each calls f from n goroutines at once.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// oneWinner lets many claims loose at once: one is granted, and the others are in progress.
func (e *env) oneWinner(request func() driver.ClaimRequest, attempt int) {
	e.Helper()
	reqs := make([]driver.ClaimRequest, e.caps.Callers)
	for i := range reqs {
		reqs[i] = request()
	}
	results := make([]driver.ClaimResult, len(reqs))
	errs := make([]error, len(reqs))
	each(len(reqs), func(i int) { results[i], errs[i] = e.handle(i).Claim(e.ctx, reqs[i]) })
	winner := -1
	for i, res := range results {
		switch {
		case errs[i] != nil:
			e.Fatalf("Claim: %v", errs[i])
		case res.Decision == driver.DecideClaimed && winner >= 0:
			e.Fatalf("two of %d claims at once were granted: tokens %d and %d", len(reqs), results[winner].Record.Token, res.Record.Token)
		case res.Decision == driver.DecideClaimed:
			winner = i
		case res.Decision != driver.DecideInProgress && res.Decision != driver.DecideAbandoned:
			e.Fatalf("Claim: %v, want claimed or in progress", res.Decision)
		}
	}
	if winner < 0 {
		e.Fatalf("none of %d claims at once was granted", len(reqs))
	}
	rec := e.get(everonce.Key{Scope: reqs[0].Scope, ID: reqs[0].Name})
	if rec.Nonce != reqs[winner].Nonce || rec.Attempt != attempt {
		e.Errorf("the record has attempt %d, by the winner: %v; want %d, true", rec.Attempt, rec.Nonce == reqs[winner].Nonce, attempt)
	}
	w := attemptOf(e, reqs[winner], results[winner])
	w.completed("done")
}

func attemptOf(e *env, req driver.ClaimRequest, res driver.ClaimResult) *attempt {
	return &attempt{e: e, req: req, rec: res.Record}
}

// checkManyOnOne has every caller claim until it may replay. Some attempts end by releasing.
func checkManyOnOne(e *env) {
	k := e.key()
	var mu sync.Mutex
	executed, running := 0, 0
	var tokens []driver.Token
	each(e.caps.Callers, func(i int) {
		for try := 0; e.ctx.Err() == nil; try++ {
			req := claimReq(k)
			res, err := e.handle(i).Claim(e.ctx, req)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			switch res.Decision {
			case driver.DecideReplay:
				if string(res.Record.Result.Data) != "done" {
					e.Errorf("replayed %d bytes, want the result", len(res.Record.Result.Data))
				}
				return
			case driver.DecideInProgress:
				continue
			case driver.DecideClaimed:
			default:
				e.Errorf("Claim: %v", res.Decision)
				return
			}
			mu.Lock()
			if running++; running > 1 {
				e.Errorf("two attempts at once")
			}
			tokens = append(tokens, res.Record.Token)
			fail := len(tokens) <= 3
			running--
			mu.Unlock()
			a := attemptOf(e, req, res)
			if fail {
				if _, err := e.s.Release(e.ctx, a.releasing(driver.StateReleased)); err != nil {
					e.Errorf("Release: %v", err)
				}
				continue
			}
			mu.Lock()
			executed++
			mu.Unlock()
			if err := a.complete("done"); err != nil {
				e.Errorf("Complete: %v", err)
			}
		}
	})
	if executed != 1 {
		e.Errorf("%d attempts completed, want 1", executed)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			e.Errorf("token %d was granted after %d", tokens[i], tokens[i-1])
		}
	}
	if rec := e.get(k); rec.Attempt != len(tokens) {
		e.Errorf("the record counts %d attempts, want %d", rec.Attempt, len(tokens))
	}
}

func checkManyOnMany(e *env) {
	keys := make([]everonce.Key, e.caps.Callers)
	for i := range keys {
		keys[i] = e.key()
	}
	each(len(keys), func(i int) {
		e := e.to(e.reporter, e.handle(i))
		req := claimReq(keys[i])
		res, err := e.s.Claim(e.ctx, req)
		if err != nil || res.Decision != driver.DecideClaimed {
			e.Errorf("Claim: %v, %v; want claimed", res.Decision, err)
			return
		}
		a := attemptOf(e, req, res)
		if err := a.step(a.stepping("step", driver.StepOpen)); err != nil {
			e.Errorf("SaveStep: %v", err)
		}
		if err := a.renew(a.renewal()); err != nil {
			e.Errorf("Renew: %v", err)
		}
		if err := a.complete(keys[i].ID); err != nil {
			e.Errorf("Complete: %v", err)
		}
	})
	for _, k := range keys {
		res := e.decided(claimReq(k), driver.DecideReplay)
		if string(res.Record.Result.Data) != k.ID || res.Record.Name != k.ID {
			e.Errorf("the result of another key is replayed")
		}
	}
}

func checkAbandonedUntouched(e *env) {
	lapsed := e.claimed(claimReq(e.key()))
	lapsed.lapse()
	ended := e.claimed(claimReq(e.key()))
	ended.released(driver.StateAbandoned)
	for _, a := range []*attempt{lapsed, ended} {
		before := e.get(a.key())
		res := e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned)
		e.same("the answer's record", res.Record, before)
		e.same("the record", e.get(a.key()), before)
	}
}

func checkTakeOver(e *env) {
	for _, how := range []string{"lapsed", "abandoned"} {
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepDone)
		a.stepped("hook", driver.StepOpen)
		wantError := ""
		if how == "lapsed" {
			a.lapse()
		} else {
			a.released(driver.StateAbandoned)
			wantError = "timeout"
		}
		before := e.get(a.key())
		b := e.claimed(a.taking(driver.TakeAbandoned))
		now := b.rec.UpdatedAt
		want := before
		want.State, want.Token, want.Nonce, want.Owner, want.Attempt = driver.StateClaimed, b.rec.Token, b.req.Nonce, "other", 2
		want.LeaseUntil, want.ClaimedAt, want.UpdatedAt, want.LastError = now.Add(b.req.Lease), now, now, wantError
		want.Previous = driver.Previous{State: driver.StateAbandoned, Owner: "suite", ClaimedAt: before.ClaimedAt}
		e.same(how+", the answer's record", b.rec, want)
		e.same(how+", the record", e.get(a.key()), want)
		if b.rec.Token <= a.rec.Token {
			e.Errorf("%s: the token went from %d to %d, want growth", how, a.rec.Token, b.rec.Token)
		}
	}
}

// states returns a record in every state, each with its own key.
func (e *env) states() map[string]*attempt {
	e.Helper()
	m := make(map[string]*attempt)
	for _, name := range []string{"claimed", "lapsed", "released", "abandoned", "completed", "tombstone"} {
		req := claimReq(e.key())
		if name == "tombstone" {
			req.Lifetime.Retention = short
		}
		a := e.claimed(req)
		switch name {
		case "lapsed":
			a.lapse()
		case "released":
			a.released(driver.StateReleased)
		case "abandoned":
			a.released(driver.StateAbandoned)
		case "completed":
			a.completed("done")
		case "tombstone":
			a.completed("done")
			e.pass(short)
		}
		m[name] = a
	}
	return m
}

func checkMismatch(e *env) {
	for name, a := range e.states() {
		before := e.get(a.key())
		for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
			req := a.taking(take)
			req.Fingerprint = fingerprintB
			e.decided(req, driver.DecideMismatch)
			req.Nonce = a.req.Nonce // its own claim, repeated with another request
			e.decided(req, driver.DecideMismatch)
		}
		e.same("the "+name+" record after mismatches", e.get(a.key()), before)
	}
}

func checkOtherAlg(e *env) {
	for _, c := range []struct {
		name               string
		saved, asked, want driver.Fingerprint
	}{
		{"another Alg", fingerprintA, otherAlg, otherAlg},
		{"none asked", fingerprintA, driver.Fingerprint{}, fingerprintA},
		{"none saved", driver.Fingerprint{}, fingerprintB, fingerprintB},
	} {
		req := claimReq(e.key())
		req.Fingerprint = c.saved
		a := e.claimed(req)
		again := a.taking(driver.TakeNone)
		again.Fingerprint = c.asked
		e.decided(again, driver.DecideInProgress)
		a.released(driver.StateReleased)
		b := e.claimed(again)
		if got := e.get(a.key()).Fingerprint; got != c.want {
			e.Errorf("%s: the second attempt's record has the fingerprint of %q, want %q", c.name, got.Alg, c.want.Alg)
		}
		b.completed("done")
		third := a.taking(driver.TakeNone)
		third.Fingerprint = driver.Fingerprint{Alg: "third/1"}
		e.decided(third, driver.DecideReplay)
	}
}

func checkUnknownStep(e *env) {
	a := e.claimed(claimReq(e.key()))
	a.stepped("mail", driver.StepOpen)
	req := a.releasing(driver.StateAbandoned)
	req.Step = "mail"
	e.release(req)
	if rec := e.get(a.key()); rec.UnknownStep != "mail" || rec.State != driver.StateAbandoned {
		e.Fatalf("the record is %v by step %q, want abandoned by mail", rec.State, rec.UnknownStep)
	}
	e.decided(a.taking(driver.TakeNone), driver.DecideAbandoned)
	e.decided(a.taking(driver.TakeAbandoned), driver.DecideAbandoned)

	// The settler dies: it stays unknown.
	dead := e.claimed(a.taking(driver.TakeToSettle))
	dead.lapse()
	e.decided(a.taking(driver.TakeAbandoned), driver.DecideAbandoned)

	// Another settles the step, and the operation may continue.
	settler := e.claimed(a.taking(driver.TakeToSettle))
	settler.stepped("mail", driver.StepDone)
	settler.released(driver.StateReleased)
	next := e.claimed(a.taking(driver.TakeNone))
	if s, ok := next.rec.Step("mail"); !ok || s.State != driver.StepDone {
		e.Errorf("the settled step is %v, want done", s.State)
	}
	if next.rec.UnknownStep != "" {
		e.Errorf("UnknownStep is still %q", next.rec.UnknownStep)
	}
}
