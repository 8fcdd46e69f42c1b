package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// txChecks test the transactions of a store, without the engine.
func txChecks[Tx any]() []check {
	return []check{
		{name: "Tx/EffectAndRecordCommitTogether", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			o := e.begin(txClaimReq(k))
			o.apply(k.ID)
			e.counted(k.ID, 0)
			o.commit(driver.CommitRequest{Complete: o.completion("done")})
			e.counted(k.ID, 1)
			res := e.notGranted(txClaimReq(k), driver.DecideReplay)
			rec := e.get(k)
			e.same("the answer's record", res.Record, rec)
			want := driver.Record{
				ID: o.req.ID, Scope: k.Scope, Name: k.ID, State: driver.StateCompleted, Token: o.res.Record.Token, Nonce: o.req.Nonce,
				Owner: o.req.Owner, Attempt: 1, Fingerprint: o.req.Fingerprint, Result: value("done"), Format: driver.FormatVersion,
				CreatedAt: rec.CreatedAt, ClaimedAt: rec.ClaimedAt, UpdatedAt: rec.UpdatedAt, CompletedAt: rec.UpdatedAt,
				ResultUntil: rec.UpdatedAt.Add(long), PurgeAt: rec.UpdatedAt.Add(2 * long),
			}
			e.same("the record", rec, want)
			e.is("Rollback after the commit", o.Rollback(e.ctx), nil)
			e.counted(k.ID, 1)
		})},
		{name: "Tx/RollbackLeavesNothing", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			first := e.begin(txClaimReq(k))
			first.apply(k.ID)
			e.ok("Complete", errOf(first.Complete(e.ctx, *first.completion("done"))))
			first.rollback()
			e.counted(k.ID, 0)
			e.absent(k)
			second := e.begin(txClaimReq(k))
			if second.res.Record.Attempt != 1 {
				e.Errorf("the next claim is attempt %d, want 1", second.res.Record.Attempt)
			}
			second.rollback()
			e.claimed(claimReq(k)).completed("guarded")
		})},
		{name: "Rule01/ATransactionsClaimExcludesOthers", run: inTx(checkTxExclusive[Tx]), needs: decidesAtClaim},
		{name: "Rule01/OneOfTheCommitsOfAKeyIsMade", run: inTx(checkTxCommits[Tx]), needs: func(c Capabilities) bool { return c.DecidesAtCommit }},
		{name: "Rule20/AClaimInATransactionIsDecidedAsSpecified", run: inTx(checkTxDecisions[Tx])},
		{name: "Rule16/AnOpenTransactionIsNotMistakenForNone", run: inTx(checkTxOpen[Tx]), needs: decidesAtClaim},
		{name: "Tx/OneWinnerOfMany", run: inTx(checkTxWinner[Tx])},
		{name: "Tx/ARefusedClaimHoldsNoConnection", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			e.claimed(claimReq(k)).completed("done")
			for range 200 { // more than a pool has
				e.notGranted(txClaimReq(k), driver.DecideReplay)
			}
			req := txClaimReq(k)
			req.Fingerprint = fingerprintB
			e.notGranted(req, driver.DecideMismatch)
			live := e.claimed(claimReq(e.key()))
			e.notGranted(txClaimReq(live.key()), driver.DecideInProgress)
			live.released(driver.StateAbandoned)
			e.notGranted(txClaimReq(live.key()), driver.DecideAbandoned)
		})},
		{name: "Rule06/ATransactionOutlivesItsContext", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			ctx, cancel := context.WithCancel(e.ctx)
			h, res, err := e.txs.Begin(ctx, driver.BeginRequest{Claim: txClaimReq(k), Timeout: hung})
			e.ok("Begin", err)
			cancel()
			o := &open[Tx]{TxHandle: h, e: e, req: *txClaimReq(k), res: res}
			o.req.Nonce = res.Record.Nonce
			o.apply(k.ID)
			o.commit(driver.CommitRequest{Complete: o.completion("done")})
			e.counted(k.ID, 1)
		})},
		{name: "Tx/ReleasedKeyIsClaimedAgain", run: inTx(func(e *txEnv[Tx]) {
			a := e.claimed(claimReq(e.key()))
			a.stepped("mail", driver.StepDone)
			a.released(driver.StateReleased)
			o := e.begin(txClaimReq(a.key()))
			o.apply(a.req.Name)
			o.commit(driver.CommitRequest{Complete: o.completion("done")})
			rec := e.get(a.key())
			if rec.Attempt != 2 || rec.Token <= a.rec.Token || rec.Previous.State != driver.StateReleased || len(rec.Steps) != 1 {
				e.Errorf("attempt %d, token %d after %d, previous %v, %d steps; want 2, growth, released, 1",
					rec.Attempt, rec.Token, a.rec.Token, rec.Previous.State, len(rec.Steps))
			}
		})},
		{name: "Tx/RecordWithoutAClaim", run: inTx(checkTxRecord[Tx])},
		{name: "Tx/ConflictRollsBack", run: inTx(checkTxConflict[Tx])},
		{name: "Tx/CompleteNeedsTheToken", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			o := e.begin(txClaimReq(k))
			o.apply(k.ID)
			forged := *o.completion("forged")
			forged.Token++
			e.is("Commit by another token", errOf(o.Commit(e.ctx, driver.CommitRequest{Complete: &forged})), driver.ErrConflict)
			e.counted(k.ID, 0)
			e.absent(k)
			o = e.begin(txClaimReq(k))
			o.apply(k.ID)
			forged = *o.completion("forged")
			forged.Nonce = driver.NewNonce()
			e.is("Commit by another nonce", errOf(o.Commit(e.ctx, driver.CommitRequest{Complete: &forged})), driver.ErrConflict)
			e.counted(k.ID, 0)
			e.absent(k)
		})},
		{name: "Rule18/AStepCommitsWithItsEffect", run: inTx(checkTxStep[Tx])},
		{name: "Rule18/TheStepsOfAGoneRecordEndWithIt", run: inTx(checkTxGone[Tx])},
		{name: "Rule18/AStepCommitsOnce", run: inTx(checkTxStepOnce[Tx])},
		{name: "Rule18/RenewChecksAndLocksTheToken", run: inTx(func(e *txEnv[Tx]) {
			a := e.claimed(claimReq(e.key()))
			o := e.begin(nil)
			e.is("Renew", errOf(o.Renew(e.ctx, a.renewal())), nil)
			o.commit(driver.CommitRequest{})
			forged := a.renewal()
			forged.Token++
			o = e.begin(nil)
			e.is("Renew by another token", errOf(o.Renew(e.ctx, forged)), driver.ErrLeaseLost)
			o.rollback()
			a.completed("done")
		})},
		{name: "Rule16/ARenewalWaitsForThatOfAnotherTransaction", run: inTx(checkRenewLocks[Tx]), needs: func(c Capabilities) bool { return !c.OneWriter && decidesAtClaim(c) }},
		{name: "Rule17/JoinedTransactionsAreTheCallers", run: inTx(checkTxJoin[Tx])},
		{name: "Rule17/ASavepointKeepsTheRest", run: inTx(checkTxSavepoint[Tx]), needs: hasSavepoints},
		{name: "Rule19/ATransactionEndsAtItsTimeout", run: inTx(checkTxTimeout[Tx])},
		{name: "Tx/WithoutATimeoutItGoesOn", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			req := txClaimReq(k)
			h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: req})
			e.ok("Begin", err)
			o := &open[Tx]{TxHandle: h, e: e, req: *req, res: res}
			o.apply(k.ID)
			o.commit(driver.CommitRequest{Complete: o.completion("done")})
			e.counted(k.ID, 1)
		})},
		{name: "Rule13/AReclaimedKeySurvivesAWaitingPurge", run: inTx(checkTxPurge[Tx])},
		{name: "Rule10/ATooLargeResultRollsBack", run: inTx(func(e *txEnv[Tx]) {
			k := e.key()
			o := e.begin(txClaimReq(k))
			o.apply(k.ID)
			done := o.completion("")
			done.Result.Data = make([]byte, e.caps.MaxResult+1)
			e.is("Commit with a byte too many", errOf(o.Commit(e.ctx, driver.CommitRequest{Complete: done})), driver.ErrTooLarge)
			e.counted(k.ID, 0)
			e.absent(k)
		}), needs: func(c Capabilities) bool { return c.RefusesLarger }},
	}
}

// checkTxExclusive holds a key by an open transaction: other claims return at once, and hold nothing.
func checkTxExclusive[Tx any](e *txEnv[Tx]) {
	k := e.key()
	o := e.begin(txClaimReq(k))
	o.apply(k.ID)
	began := time.Now()
	for i := range 3 {
		e := e.process(i)
		e.notGranted(txClaimReq(k), driver.DecideInProgress)
		e.decided(claimReq(k), driver.DecideInProgress)
		settle := claimReq(k)
		settle.Take = driver.TakeToSettle
		if res := e.claim(settle); res.Decision != driver.DecideInProgress && res.Decision != driver.DecideAbsent {
			e.Errorf("a settlement under an open transaction: %v", res.Decision)
		}
	}
	// Nine calls failed fast: the rest of the time is for a busy machine. A call that waits does so without end.
	if waited, most := time.Since(began), 30*time.Second+9*e.caps.DuplicateWaits; waited > most {
		e.Errorf("duplicates waited %v inside the store, want at most %v", waited, most)
	}
	o.commit(driver.CommitRequest{Complete: o.completion("done")})
	e.notGranted(txClaimReq(k), driver.DecideReplay)
	e.decided(claimReq(k), driver.DecideReplay)
	e.counted(k.ID, 1)
}

// checkTxOpen looks after a transaction whose commit was sent and never answered: while it is open its
// own claim, repeated, is in progress; then it is what became of it.
func checkTxOpen[Tx any](e *txEnv[Tx]) {
	for _, commits := range []bool{true, false} {
		k := e.key()
		o := e.begin(txClaimReq(k))
		o.apply(k.ID)
		e.notGranted(&o.req, driver.DecideInProgress)
		if commits {
			o.commit(driver.CommitRequest{Complete: o.completion("done")})
			if res := e.notGranted(&o.req, driver.DecideReplay); res.Record.Nonce != o.req.Nonce {
				e.Errorf("the record has another nonce")
			}
			e.counted(k.ID, 1)
			continue
		}
		o.rollback()
		again := e.begin(&o.req)
		again.apply(k.ID)
		again.commit(driver.CommitRequest{Complete: again.completion("done")})
		e.counted(k.ID, 1)
	}
}

func checkTxWinner[Tx any](e *txEnv[Tx]) {
	k := e.key()
	granted := make([]bool, min(e.caps.Callers, 16))
	each(len(granted), func(i int) {
		e := e.process(i)
		for e.ctx.Err() == nil {
			req := txClaimReq(k)
			h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: req, Timeout: hung})
			switch {
			case err != nil && e.txs.ClassifyTx(err) == driver.TxErrorRetry:
				continue
			case err != nil:
				e.Errorf("Begin: %v", err)
				return
			case res.Decision == driver.DecideInProgress:
				continue
			case res.Decision == driver.DecideReplay:
				return
			case res.Decision != driver.DecideClaimed:
				e.Errorf("Begin: %v", res.Decision)
				return
			}
			if err := e.app.Apply(e.ctx, h.Tx(), k.ID); err != nil {
				e.Errorf("the application's write: %v", err)
			}
			o := &open[Tx]{TxHandle: h, e: e, req: *req, res: res}
			switch _, err := h.Commit(e.ctx, driver.CommitRequest{Complete: o.completion("done")}); {
			case errors.Is(err, driver.ErrConflict):
				continue // what it read may be older than its lock: the commit is what tells the winner
			case err != nil:
				e.Errorf("Commit: %v", err)
				return
			}
			granted[i] = true
			return
		}
	})
	winners := 0
	for _, g := range granted {
		if g {
			winners++
		}
	}
	if winners != 1 {
		e.Errorf("%d of %d transactions were granted the key, want 1", winners, len(granted))
	}
	e.counted(k.ID, 1)
}

func checkTxRecord[Tx any](e *txEnv[Tx]) {
	released := e.claimed(claimReq(e.key()))
	released.released(driver.StateReleased)
	goneReq := claimReq(e.key())
	goneReq.Lifetime = driver.Lifetime{Retention: short}
	gone := e.claimed(goneReq)
	gone.completed("before")
	e.pass(short)
	for name, c := range map[string]struct {
		key     everonce.Key
		attempt int
		after   driver.Token
	}{
		"new":      {e.key(), 1, 0},
		"released": {released.key(), 2, released.rec.Token},
		"gone":     {gone.key(), 1, gone.rec.Token},
	} {
		o := e.begin(nil)
		o.req = *txClaimReq(c.key)
		o.apply(c.key.ID)
		o.commit(driver.CommitRequest{Record: &o.req, Complete: o.completion("done")})
		rec := e.get(c.key)
		if rec.State != driver.StateCompleted || rec.Attempt != c.attempt || rec.Token <= c.after || rec.Nonce != o.req.Nonce {
			e.Errorf("%s: %v, attempt %d, token %d after %d; want completed, %d, growth", name, rec.State, rec.Attempt, rec.Token, c.after, c.attempt)
		}
		if rec.Owner != o.req.Owner || rec.Fingerprint != o.req.Fingerprint || rec.Scope != c.key.Scope || rec.Name != c.key.ID {
			e.Errorf("%s: owner, fingerprint, scope or name are not the claim's", name)
		}
		e.decided(claimReq(c.key), driver.DecideReplay)
		e.counted(c.key.ID, 1)
	}
}

// checkTxConflict records without a claim over what another has meanwhile.
func checkTxConflict[Tx any](e *txEnv[Tx]) {
	for name, a := range e.states() {
		if name == "released" {
			continue
		}
		before := e.get(a.key())
		o := e.begin(nil)
		o.req = *txClaimReq(a.key())
		o.apply(a.req.Name)
		e.is("Commit over a record that is "+name, errOf(o.Commit(e.ctx, driver.CommitRequest{Record: &o.req, Complete: o.completion("mine")})), driver.ErrConflict)
		e.counted(a.req.Name, 0)
		e.same("the "+name+" record", e.get(a.key()), before)
	}
	// A released record may be claimed, but not by another request.
	a := e.claimed(claimReq(e.key()))
	a.released(driver.StateReleased)
	before := e.get(a.key())
	o := e.begin(nil)
	o.req = *txClaimReq(a.key())
	o.req.Fingerprint = fingerprintB
	o.apply(a.req.Name)
	e.is("Commit over a released record of another fingerprint", errOf(o.Commit(e.ctx, driver.CommitRequest{Record: &o.req, Complete: o.completion("mine")})), driver.ErrConflict)
	e.counted(a.req.Name, 0)
	e.same("the released record", e.get(a.key()), before)
	if e.caps.OneWriter {
		return // no other claim comes in between
	}
	k := e.key()
	first, second := e.begin(nil), e.begin(nil)
	first.req, second.req = *txClaimReq(k), *txClaimReq(k)
	first.apply(k.ID)
	second.apply(k.ID)
	first.commit(driver.CommitRequest{Record: &first.req, Complete: first.completion("first")})
	e.is("Commit of the second of two", errOf(second.Commit(e.ctx, driver.CommitRequest{Record: &second.req, Complete: second.completion("second")})), driver.ErrConflict)
	e.counted(k.ID, 1)
}

func checkTxStep[Tx any](e *txEnv[Tx]) {
	a := e.claimed(claimReq(e.key()))
	o := e.begin(nil)
	o.apply(a.req.Name)
	until := e.get(a.key()).LeaseUntil
	e.pass(short)
	step := a.stepping("charge", driver.StepDone)
	o.commit(driver.CommitRequest{SaveStep: &step})
	e.counted(a.req.Name, 1)
	rec := e.get(a.key())
	s, ok := rec.Step("charge")
	if !ok || s.State != driver.StepDone || string(s.Result.Data) != "step charge" || s.BeganAt.IsZero() || !s.EndedAt.Equal(s.BeganAt) {
		e.Errorf("the step is %+v, want it done, begun and ended by the commit", s)
	}
	if !rec.LeaseUntil.After(until) {
		e.Errorf("the step's commit has not renewed the lease")
	}

	// An attempt that lost its record commits nothing.
	a.lapse()
	b := e.claimed(a.taking(driver.TakeAbandoned))
	before := e.get(a.key())
	o = e.begin(nil)
	o.apply(a.req.Name)
	late := a.stepping("late", driver.StepDone)
	e.is("Commit of a late step", errOf(o.Commit(e.ctx, driver.CommitRequest{SaveStep: &late})), driver.ErrLeaseLost)
	e.counted(a.req.Name, 1)
	e.same("the record", e.get(a.key()), before)
	b.completed("done")

	// Nor does one that lost it while its transaction was open.
	if e.caps.OneWriter {
		return
	}
	c := e.claimed(claimReq(e.key()))
	o = e.begin(nil)
	o.apply(c.req.Name)
	c.lapse()
	d := e.claimed(c.taking(driver.TakeAbandoned))
	step = c.stepping("charge", driver.StepDone)
	e.is("Commit of a step under a takeover", errOf(o.Commit(e.ctx, driver.CommitRequest{SaveStep: &step})), driver.ErrLeaseLost)
	e.counted(c.req.Name, 0)
	d.completed("done")
}

func checkTxJoin[Tx any](e *txEnv[Tx]) {
	for _, commits := range []bool{true, false} {
		k := e.key()
		tx := e.own()
		h := e.join(tx)
		req := txClaimReq(k)
		res, err := h.Claim(e.ctx, *req)
		e.ok("Claim", err)
		if res.Decision != driver.DecideClaimed {
			e.Fatalf("Claim: %v, want claimed", res.Decision)
		}
		if twice, err := h.Claim(e.ctx, *txClaimReq(k)); (err != nil || twice.Decision != driver.DecideInProgress) && hasSavepoints(e.caps) {
			e.Errorf("a second claim in the same transaction: %v, %v; want in progress", twice.Decision, err)
		}
		e.ok("the application's write", e.app.Apply(e.ctx, h.Tx(), k.ID))
		o := &open[Tx]{TxHandle: h, e: e, req: *req, res: res}
		e.ok("Complete", errOf(h.Complete(e.ctx, *o.completion("done"))))
		if _, err := h.Commit(e.ctx, driver.CommitRequest{}); err == nil {
			e.Fatalf("Commit of the caller's transaction is not refused")
		}
		if err := h.Rollback(e.ctx); err == nil {
			e.Fatalf("Rollback of the caller's transaction is not refused")
		}
		again, err := h.Claim(e.ctx, *txClaimReq(k))
		e.ok("Claim of the completed key, in the same transaction", err)
		if again.Decision != driver.DecideReplay {
			e.Errorf("in the same transaction the key is %v, want replay", again.Decision)
		}
		if commits {
			e.ok("the application's commit", tx.Commit(e.ctx))
			e.counted(k.ID, 1)
			e.notGranted(txClaimReq(k), driver.DecideReplay)
			continue
		}
		e.ok("the application's rollback", tx.Rollback(e.ctx))
		e.counted(k.ID, 0)
		e.absent(k)
		e.claimed(claimReq(k)).completed("guarded")
	}
}

func hasSavepoints(c Capabilities) bool { return !c.NoSavepoints }

func checkTxSavepoint[Tx any](e *txEnv[Tx]) {
	kept, undone := e.key(), e.key()
	tx := e.own()
	h := e.join(tx)
	e.ok("the application's write", e.app.Apply(e.ctx, tx.Tx, kept.ID))
	e.ok("Savepoint", h.Savepoint(e.ctx, "everonce_0"))
	req := txClaimReq(undone)
	res, err := h.Claim(e.ctx, *req)
	e.ok("Claim", err)
	o := &open[Tx]{TxHandle: h, e: e, req: *req, res: res}
	e.ok("the application's write", e.app.Apply(e.ctx, tx.Tx, undone.ID))
	e.ok("Complete", errOf(h.Complete(e.ctx, *o.completion("done"))))
	if err := e.app.Spoil(e.ctx, tx.Tx); err == nil {
		e.Fatalf("drivertest: Spoil was not refused by the database")
	}
	e.ok("RollbackTo", h.RollbackTo(e.ctx, "everonce_0"))
	e.ok("ReleaseSavepoint", h.ReleaseSavepoint(e.ctx, "everonce_0"))
	e.ok("the application's commit", tx.Commit(e.ctx))
	e.counted(kept.ID, 1)
	e.counted(undone.ID, 0)
	e.absent(undone)
}

// checkTxTimeout waits until a transaction has outlived its timeout: nothing of it is ever committed.
func checkTxTimeout[Tx any](e *txEnv[Tx]) {
	k := e.key()
	req := txClaimReq(k)
	// Long enough for the write that follows, on a machine that is busy.
	h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: req, Timeout: 3 * time.Second})
	e.ok("Begin", err)
	o := &open[Tx]{TxHandle: h, e: e, req: *req, res: res}
	o.apply(k.ID)
	for err = nil; err == nil && e.ctx.Err() == nil; {
		_, err = h.Get(e.ctx, driver.GetRequest{ID: req.ID})
	}
	e.is("a read after the timeout", err, driver.ErrTxTooLong)
	if _, err := h.Commit(e.ctx, driver.CommitRequest{Complete: o.completion("late")}); !errors.Is(err, driver.ErrTxTooLong) {
		e.Errorf("Commit after the timeout: %v, want %v", err, driver.ErrTxTooLong)
	}
	e.is("Rollback after the timeout", h.Rollback(e.ctx), nil)
	e.counted(k.ID, 0)
	e.absent(k)
	again := claimReq(k)
	for e.claim(again).Decision == driver.DecideInProgress && e.ctx.Err() == nil { // it is being rolled back
		e.pass(time.Millisecond)
	}
	e.claimed(again).completed("guarded")
}

// checkTxPurge purges while a transaction that has not committed claims a key again.
func checkTxPurge[Tx any](e *txEnv[Tx]) {
	for range 3 {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short}
		a := e.claimed(req)
		a.completed("before")
		e.pass(short)
		o := e.begin(txClaimReq(a.key()))
		o.apply(a.req.Name)
		e.ok("Complete", errOf(o.Complete(e.ctx, *o.completion("again"))))
		purged := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			_, err := e.h.Peer.Purge(e.ctx, driver.PurgeRequest{Limit: 100})
			purged <- err
		}()
		<-started
		select {
		case err := <-purged: // it did not wait
			purged <- err
		case <-time.After(50 * time.Millisecond): // it waits, or has not come so far: either is fine
		}
		o.commit(driver.CommitRequest{})
		e.ok("Purge", <-purged)
		res := e.decided(claimReq(a.key()), driver.DecideReplay)
		if string(res.Record.Result.Data) != "again" || res.Record.Attempt != 1 {
			e.Errorf("the record has attempt %d", res.Record.Attempt)
		}
		e.counted(a.req.Name, 1)
	}
}
