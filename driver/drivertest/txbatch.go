package drivertest

import (
	"bytes"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// txBatchChecks test transactions that claim many keys at once.
func txBatchChecks[Tx any]() []check {
	has := func(c Capabilities) bool { return c.TxBatch }
	return []check{
		{name: "TxBatch/AsDeclared", run: inTx(func(e *txEnv[Tx]) {
			o := e.begin(nil)
			_, ok := o.TxHandle.(driver.TxBatch)
			o.rollback()
			if ok != e.caps.TxBatch {
				e.Errorf("the store's transactions implement driver.TxBatch: %v, Capabilities declare it: %v", ok, e.caps.TxBatch)
			}
		})},
		{name: "Rule20/ManyClaimsAreDecidedAsOneIs", run: inTx(checkClaimAll[Tx]), needs: has},
		{name: "TxBatch/RecordsAreAsSingleOnes", run: inTx(checkCommitAll[Tx]), needs: has},
		{name: "TxBatch/AllOrNothing", run: inTx(checkAllOrNothing[Tx]), needs: has},
		{name: "Rule01/ABatchTakesNothingThatIsBusy", run: inTx(checkBatchBusy[Tx]), needs: func(c Capabilities) bool { return c.TxBatch && !c.OneWriter }},
	}
}

// many is a transaction that takes many keys at once.
type many[Tx any] struct {
	*open[Tx]
	driver.TxBatch
}

func (e *txEnv[Tx]) beginMany() many[Tx] {
	e.Helper()
	o := e.begin(nil)
	b, ok := o.TxHandle.(driver.TxBatch)
	if !ok {
		o.rollback()
		e.Fatalf("the transaction is not a driver.TxBatch")
	}
	return many[Tx]{o, b}
}

// sorted puts claims in the order of their IDs.
func sorted(reqs []driver.ClaimRequest) []driver.ClaimRequest {
	slices.SortFunc(reqs, func(a, b driver.ClaimRequest) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return reqs
}

func (m many[Tx]) claimAll(reqs []driver.ClaimRequest) []driver.ClaimResult {
	m.e.Helper()
	res, err := m.ClaimAll(m.e.ctx, driver.ClaimAllRequest{Claims: reqs})
	if err != nil || len(res.Claims) != len(reqs) {
		m.e.Fatalf("ClaimAll: %d answers to %d claims, %v", len(res.Claims), len(reqs), err)
	}
	return res.Claims
}

func (m many[Tx]) commitAll(done []driver.CompleteRequest) error {
	return errOf(m.CommitAll(m.e.ctx, driver.CommitAllRequest{Completions: done}))
}

// checkClaimAll claims keys in every state at once, and compares with Decide.
func checkClaimAll[Tx any](e *txEnv[Tx]) {
	var reqs []driver.ClaimRequest
	for _, a := range e.states() {
		same, other, alg := *txClaimReq(a.key()), *txClaimReq(a.key()), *txClaimReq(a.key())
		other.Fingerprint, alg.Fingerprint = fingerprintB, otherAlg
		reqs = append(reqs, [3]driver.ClaimRequest{same, other, alg}[len(reqs)%3])
	}
	for _, a := range e.states() {
		reqs = append(reqs, *txClaimReq(a.key()))
	}
	for range 5 {
		reqs = append(reqs, *txClaimReq(e.key()))
	}
	stepped := e.claimed(claimReq(e.key()))
	stepped.stepped("mail", driver.StepDone)
	stepped.released(driver.StateReleased)
	reqs = append(reqs, *txClaimReq(stepped.key()))
	reqs = sorted(reqs)
	m := e.beginMany()
	defer m.rollback()
	for i, res := range m.claimAll(reqs) {
		got := e.look(reqs[i].ID)
		var rec *driver.Record
		if got.Found {
			rec = &got.Record
		}
		if want := driver.Decide(rec, reqs[i], got.Now); res.Decision != want {
			e.Errorf("a claim is decided as %v, want %v", res.Decision, want)
			continue
		}
		switch {
		case res.Decision == driver.DecideClaimed && (res.Record.Nonce != reqs[i].Nonce || res.Record.Token == 0 || rec != nil && (res.Record.Token <= rec.Token || res.Record.Attempt != rec.Attempt+1)):
			e.Errorf("granted with the token %d, attempt %d", res.Record.Token, res.Record.Attempt)
		case res.Decision == driver.DecideReplay:
			e.same("the answer's record", res.Record, *rec)
		case reqs[i].ID == stepped.req.ID && len(res.Record.Steps) != 1:
			e.Errorf("a claim returns %d steps, want 1", len(res.Record.Steps))
		}
	}
}

// results are of every kind that a batch may have to write.
func results() []driver.SavedResult {
	failure := driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"no"}`), Summary: []byte("no")}
	return []driver.SavedResult{
		value("one"), value("two"), value(`"quoted" \ 'text', {NULL}`),
		{Kind: driver.ResultValue, Codec: "raw"},
		{Kind: driver.ResultValue, Codec: "raw", Data: []byte{}},
		{Kind: driver.ResultValue, Codec: "raw", Data: []byte{0, 0xff, '\\', '"'}, Summary: []byte{0}},
		{Kind: driver.ResultElided, Summary: []byte("long")},
		failure,
		{Kind: driver.ResultValue, Codec: "other", Data: []byte("x")},
	}
}

// checkCommitAll writes all kinds of results at once, over keys with and without a record, and compares with what
// single completions have written.
func checkCommitAll[Tx any](e *txEnv[Tx]) {
	plain := func(r driver.Record) driver.Record {
		r.ID, r.Name, r.Token, r.Nonce = driver.RecordID{}, "", 0, driver.Nonce{}
		r.ResultUntil, r.PurgeAt = time.Time{}.Add(r.ResultUntil.Sub(r.UpdatedAt)), time.Time{}.Add(r.PurgeAt.Sub(r.UpdatedAt))
		r.CompletedAt = time.Time{}.Add(r.CompletedAt.Sub(r.UpdatedAt))
		r.CreatedAt, r.ClaimedAt, r.UpdatedAt, r.Previous.ClaimedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		for i := range r.Steps {
			r.Steps[i].BeganAt, r.Steps[i].EndedAt = time.Time{}, time.Time{}
		}
		return r
	}
	for _, sum := range []driver.Fingerprint{fingerprintA, {}, otherAlg} {
		var reqs []driver.ClaimRequest
		wanted, written := make(map[driver.RecordID]driver.Record), make(map[driver.RecordID]driver.SavedResult)
		for i, result := range results() {
			for _, released := range []bool{false, true} {
				key := func() driver.ClaimRequest {
					k := e.key()
					k.ID += `"\',{}ü`
					if i%4 == 3 {
						k.Scope = driver.ScopeOf(string(e.scope), "deeper")
					}
					if released {
						a := e.claimed(claimReq(k))
						a.stepped("mail", driver.StepDone)
						a.released(driver.StateReleased)
					}
					req := *txClaimReq(k)
					if req.Fingerprint = sum; released {
						req.Fingerprint = fingerprintA
					}
					return req
				}
				single := key()
				o := e.begin(&single)
				done := o.completion("")
				done.Result = result
				o.commit(driver.CommitRequest{Complete: done})
				req := key()
				wanted[req.ID], written[req.ID] = plain(e.look(single.ID).Record), result
				reqs = append(reqs, req)
			}
		}
		reqs = sorted(reqs)
		m := e.beginMany()
		done := make([]driver.CompleteRequest, len(reqs))
		for i, res := range m.claimAll(reqs) {
			if res.Decision != driver.DecideClaimed {
				e.Fatalf("ClaimAll: %v", res.Decision)
			}
			done[i] = driver.CompleteRequest{ID: reqs[i].ID, Token: res.Record.Token, Nonce: reqs[i].Nonce, Result: written[reqs[i].ID], Lifetime: forLong}
		}
		e.ok("CommitAll", m.commitAll(done))
		for i, req := range reqs {
			got := e.look(req.ID)
			if !got.Found || got.Record.Token != done[i].Token || got.Record.Nonce != req.Nonce || got.Record.Name != req.Name {
				e.Fatalf("the record is found: %v, with the token %d, want %d", got.Found, got.Record.Token, done[i].Token)
			}
			e.same("the record", plain(got.Record), wanted[req.ID])
		}
	}
}

// checkAllOrNothing commits a batch in which one completion does not belong to its claim.
func checkAllOrNothing[Tx any](e *txEnv[Tx]) {
	forge := map[string]func(c *driver.CompleteRequest){
		"another token":       func(c *driver.CompleteRequest) { c.Token++ },
		"another nonce":       func(c *driver.CompleteRequest) { c.Nonce = driver.NewNonce() },
		"an unclaimed record": func(c *driver.CompleteRequest) { c.ID = e.key().RecordID() },
	}
	for what, change := range forge {
		reqs := make([]driver.ClaimRequest, 0, 4)
		for range cap(reqs) {
			reqs = append(reqs, *txClaimReq(e.key()))
		}
		reqs = sorted(reqs)
		m := e.beginMany()
		done := make([]driver.CompleteRequest, len(reqs))
		for i, res := range m.claimAll(reqs) {
			m.apply(reqs[i].Name)
			done[i] = driver.CompleteRequest{ID: reqs[i].ID, Token: res.Record.Token, Nonce: reqs[i].Nonce, Result: value("x"), Lifetime: forLong}
		}
		change(&done[2])
		e.is("CommitAll with "+what, m.commitAll(done), driver.ErrConflict)
		for _, req := range reqs {
			e.counted(req.Name, 0)
			e.absent(everonce.Key{Scope: req.Scope, ID: req.Name})
		}
	}
}

// checkBatchBusy runs batches and single claims at once: each fails fast for keys that others hold, and takes the
// rest.
func checkBatchBusy[Tx any](e *txEnv[Tx]) {
	var first, second []driver.ClaimRequest
	busy := make(map[driver.RecordID]bool)
	for i := range 6 {
		req := *txClaimReq(e.key())
		if i < 4 {
			first = append(first, req)
			busy[req.ID] = true
		}
		if i > 1 {
			again := req
			again.Nonce = driver.NewNonce()
			second = append(second, again)
		}
	}
	m := e.beginMany()
	for _, res := range m.claimAll(sorted(first)) {
		if res.Decision != driver.DecideClaimed {
			e.Fatalf("ClaimAll: %v", res.Decision)
		}
	}
	began := time.Now()
	e.notGranted(txClaimReq(everonce.Key{Scope: first[0].Scope, ID: first[0].Name}), driver.DecideInProgress)
	e.decided(claimReq(everonce.Key{Scope: first[1].Scope, ID: first[1].Name}), driver.DecideInProgress)
	o := e.beginMany()
	for i, res := range o.claimAll(sorted(second)) {
		want := driver.DecideClaimed
		if busy[second[i].ID] {
			want = driver.DecideInProgress
		}
		if res.Decision != want {
			e.Errorf("a claim of another batch returns %v, want %v", res.Decision, want)
		}
	}
	if waited, most := time.Since(began), 30*time.Second+6*e.caps.DuplicateWaits; waited > most {
		e.Errorf("duplicates waited %v inside the store, want at most %v", waited, most)
	}
	o.rollback()
	m.rollback()
}
