package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/everonce/everonce"
)

// txBatchChecks are of transactions that take many keys at once.
func txBatchChecks[Tx any]() []check {
	has := func(c Capabilities) bool { return c.TxBatch }
	return []check{
		{name: "TxBatch/AsDeclared", run: inTx(func(e *txEnv[Tx]) {
			o := e.begin(nil)
			_, ok := o.TxHandle.(everonce.TxBatch)
			o.rollback()
			if ok != e.caps.TxBatch {
				e.Errorf("the store's transactions implement everonce.TxBatch: %v, Capabilities declare it: %v", ok, e.caps.TxBatch)
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
	everonce.TxBatch
}

func (e *txEnv[Tx]) beginMany() many[Tx] {
	e.Helper()
	o := e.begin(nil)
	b, ok := o.TxHandle.(everonce.TxBatch)
	if !ok {
		o.rollback()
		e.Fatalf("the transaction is no everonce.TxBatch")
	}
	return many[Tx]{o, b}
}

// sorted puts claims in the order of their IDs.
func sorted(reqs []everonce.ClaimRequest) []everonce.ClaimRequest {
	slices.SortFunc(reqs, func(a, b everonce.ClaimRequest) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return reqs
}

func (m many[Tx]) claimAll(reqs []everonce.ClaimRequest) []everonce.ClaimResult {
	m.e.Helper()
	all, err := m.ClaimAll(m.e.ctx, reqs)
	if err != nil || len(all) != len(reqs) {
		m.e.Fatalf("ClaimAll: %d answers to %d claims, %v", len(all), len(reqs), err)
	}
	return all
}

// checkClaimAll claims keys in every state at once, and compares with Decide.
func checkClaimAll[Tx any](e *txEnv[Tx]) {
	var reqs []everonce.ClaimRequest
	for _, a := range e.states() {
		same, other, alg := *txClaimReq(a.key()), *txClaimReq(a.key()), *txClaimReq(a.key())
		other.Fingerprint, alg.Fingerprint = fingerprintB, otherAlg
		reqs = append(reqs, [3]everonce.ClaimRequest{same, other, alg}[len(reqs)%3])
	}
	for _, a := range e.states() {
		reqs = append(reqs, *txClaimReq(a.key()))
	}
	for range 5 {
		reqs = append(reqs, *txClaimReq(e.key()))
	}
	stepped := e.claimed(claimReq(e.key()))
	stepped.stepped("mail", everonce.StepDone)
	stepped.released(everonce.StateReleased)
	reqs = append(reqs, *txClaimReq(stepped.key()))
	reqs = sorted(reqs)
	m := e.beginMany()
	defer m.rollback()
	for i, res := range m.claimAll(reqs) {
		got := e.look(reqs[i].ID)
		var rec *everonce.Record
		if got.Found {
			rec = &got.Record
		}
		if want := everonce.Decide(rec, reqs[i], got.Now); res.Decision != want {
			e.Errorf("a claim is decided as %v, want %v", res.Decision, want)
			continue
		}
		switch {
		case res.Decision == everonce.DecideClaimed && (res.Record.Nonce != reqs[i].Nonce || res.Record.Token == 0 || rec != nil && (res.Record.Token <= rec.Token || res.Record.Attempt != rec.Attempt+1)):
			e.Errorf("granted with the token %d, attempt %d", res.Record.Token, res.Record.Attempt)
		case res.Decision == everonce.DecideReplay:
			e.same("the answer's record", res.Record, *rec)
		case reqs[i].ID == stepped.req.ID && len(res.Record.Steps) != 1:
			e.Errorf("a claim is told %d steps, want 1", len(res.Record.Steps))
		}
	}
}

// results are of every kind that a batch may have to write.
func results() []everonce.SavedResult {
	failure := everonce.SavedResult{Kind: everonce.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"no"}`), Summary: []byte("no")}
	return []everonce.SavedResult{
		value("one"), value("two"), value(`"quoted" \ 'text', {NULL}`),
		{Kind: everonce.ResultValue, Codec: "raw"},
		{Kind: everonce.ResultValue, Codec: "raw", Data: []byte{}},
		{Kind: everonce.ResultValue, Codec: "raw", Data: []byte{0, 0xff, '\\', '"'}, Summary: []byte{0}},
		{Kind: everonce.ResultElided, Summary: []byte("long")},
		failure,
		{Kind: everonce.ResultValue, Codec: "other", Data: []byte("x")},
	}
}

// checkCommitAll writes all kinds of results at once, over keys with and without a record, and compares with what
// single completions have written.
func checkCommitAll[Tx any](e *txEnv[Tx]) {
	plain := func(r everonce.Record) everonce.Record {
		r.ID, r.Name, r.Token, r.Nonce = everonce.RecordID{}, "", 0, everonce.Nonce{}
		r.ResultUntil, r.PurgeAt = time.Time{}.Add(r.ResultUntil.Sub(r.UpdatedAt)), time.Time{}.Add(r.PurgeAt.Sub(r.UpdatedAt))
		r.CompletedAt = time.Time{}.Add(r.CompletedAt.Sub(r.UpdatedAt))
		r.CreatedAt, r.ClaimedAt, r.UpdatedAt, r.Previous.ClaimedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		for i := range r.Steps {
			r.Steps[i].BeganAt, r.Steps[i].EndedAt = time.Time{}, time.Time{}
		}
		return r
	}
	for _, sum := range []everonce.Fingerprint{fingerprintA, {}, otherAlg} {
		var reqs []everonce.ClaimRequest
		wanted, written := make(map[everonce.RecordID]everonce.Record), make(map[everonce.RecordID]everonce.SavedResult)
		for i, result := range results() {
			for _, released := range []bool{false, true} {
				key := func() everonce.ClaimRequest {
					k := e.key()
					k.ID += `"\',{}ü`
					if i%4 == 3 {
						k.Scope = everonce.ScopeOf(string(e.scope), "deeper")
					}
					if released {
						a := e.claimed(claimReq(k))
						a.stepped("mail", everonce.StepDone)
						a.released(everonce.StateReleased)
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
				o.commit(everonce.CommitRequest{Complete: done})
				req := key()
				wanted[req.ID], written[req.ID] = plain(e.look(single.ID).Record), result
				reqs = append(reqs, req)
			}
		}
		reqs = sorted(reqs)
		m := e.beginMany()
		done := make([]everonce.CompleteRequest, len(reqs))
		for i, res := range m.claimAll(reqs) {
			if res.Decision != everonce.DecideClaimed {
				e.Fatalf("ClaimAll: %v", res.Decision)
			}
			done[i] = everonce.CompleteRequest{ID: reqs[i].ID, Token: res.Record.Token, Nonce: reqs[i].Nonce, Result: written[reqs[i].ID], Lifetime: forLong}
		}
		e.ok("CommitAll", m.CommitAll(e.ctx, done))
		for i, req := range reqs {
			got := e.look(req.ID)
			if !got.Found || got.Record.Token != done[i].Token || got.Record.Nonce != req.Nonce || got.Record.Name != req.Name {
				e.Fatalf("the record is found: %v, with the token %d, want %d", got.Found, got.Record.Token, done[i].Token)
			}
			e.same("the record", plain(got.Record), wanted[req.ID])
		}
	}
}

// checkAllOrNothing commits a batch in which one completion is not that of its claim.
func checkAllOrNothing[Tx any](e *txEnv[Tx]) {
	forge := map[string]func(c *everonce.CompleteRequest){
		"another token":       func(c *everonce.CompleteRequest) { c.Token++ },
		"another nonce":       func(c *everonce.CompleteRequest) { c.Nonce = everonce.NewNonce() },
		"an unclaimed record": func(c *everonce.CompleteRequest) { c.ID = e.key().RecordID() },
	}
	for what, change := range forge {
		reqs := make([]everonce.ClaimRequest, 0, 4)
		for range cap(reqs) {
			reqs = append(reqs, *txClaimReq(e.key()))
		}
		reqs = sorted(reqs)
		m := e.beginMany()
		done := make([]everonce.CompleteRequest, len(reqs))
		for i, res := range m.claimAll(reqs) {
			m.apply(reqs[i].Name)
			done[i] = everonce.CompleteRequest{ID: reqs[i].ID, Token: res.Record.Token, Nonce: reqs[i].Nonce, Result: value("x"), Lifetime: forLong}
		}
		change(&done[2])
		e.is("CommitAll with "+what, m.CommitAll(e.ctx, done), everonce.ErrConflict)
		for _, req := range reqs {
			e.counted(req.Name, 0)
			e.absent(everonce.Key{Scope: req.Scope, ID: req.Name})
		}
	}
}

// checkBatchBusy lets batches and single claims meet: each is told at once what others are at, and takes the rest.
func checkBatchBusy[Tx any](e *txEnv[Tx]) {
	var first, second []everonce.ClaimRequest
	busy := make(map[everonce.RecordID]bool)
	for i := range 6 {
		req := *txClaimReq(e.key())
		if i < 4 {
			first = append(first, req)
			busy[req.ID] = true
		}
		if i > 1 {
			again := req
			again.Nonce = everonce.NewNonce()
			second = append(second, again)
		}
	}
	m := e.beginMany()
	for _, res := range m.claimAll(sorted(first)) {
		if res.Decision != everonce.DecideClaimed {
			e.Fatalf("ClaimAll: %v", res.Decision)
		}
	}
	began := time.Now()
	e.told(txClaimReq(everonce.Key{Scope: first[0].Scope, ID: first[0].Name}), everonce.DecideInProgress)
	e.decided(claimReq(everonce.Key{Scope: first[1].Scope, ID: first[1].Name}), everonce.DecideInProgress)
	o := e.beginMany()
	for i, res := range o.claimAll(sorted(second)) {
		want := everonce.DecideClaimed
		if busy[second[i].ID] {
			want = everonce.DecideInProgress
		}
		if res.Decision != want {
			e.Errorf("a claim of another batch is told %v, want %v", res.Decision, want)
		}
	}
	if waited, most := time.Since(began), 5*time.Second+6*e.caps.DuplicateWaits; waited > most {
		e.Errorf("duplicates waited %v inside the store, want at most %v", waited, most)
	}
	o.rollback()
	m.rollback()
}
