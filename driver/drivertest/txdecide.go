package drivertest

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// checkTxDecisions claims keys in every state inside transactions, of everonce's own and of the caller's, and
// compares with Decide: what an attempt outside of transactions has, did or left unknown is no more free there.
func checkTxDecisions[Tx any](e *txEnv[Tx]) {
	gone := claimReq(e.key())
	gone.Lifetime = driver.Lifetime{Retention: short}
	attempts := e.states()
	attempts["gone"] = e.claimed(gone)
	attempts["gone"].stepped("mail", driver.StepDone)
	attempts["gone"].completed("before")
	attempts["released"] = e.claimed(claimReq(e.key()))
	attempts["released"].stepped("mail", driver.StepDone)
	attempts["released"].released(driver.StateReleased)
	e.pass(short)
	for name, a := range attempts {
		for _, sum := range []driver.Fingerprint{fingerprintA, fingerprintB, otherAlg, {}} {
			got := e.look(a.req.ID)
			var rec *driver.Record
			if got.Found {
				rec = &got.Record
			}
			decide := func(how string, claim func(req driver.ClaimRequest) driver.ClaimResult) {
				req := *txClaimReq(a.key())
				req.Fingerprint = sum
				res, want := claim(req), driver.Decide(rec, req, got.Now)
				if res.Decision != want {
					e.Errorf("%s, a claim of the %s record is decided as %v, want %v", how, name, res.Decision, want)
					return
				}
				switch res.Decision {
				case driver.DecideClaimed:
					attempt, steps := 1, 0
					if rec != nil {
						attempt, steps = rec.Attempt+1, len(rec.Steps)
					}
					if r := res.Record; r.Token <= a.rec.Token || r.Nonce != req.Nonce || r.Attempt != attempt || len(r.Steps) != steps {
						e.Errorf("%s, the %s record is granted with the token %d after %d, as attempt %d with %d steps, want growth, %d and %d",
							how, name, r.Token, a.rec.Token, r.Attempt, len(r.Steps), attempt, steps)
					}
				case driver.DecideReplay:
					e.same(how+", the answer's record", res.Record, *rec)
				}
			}
			decide("in a separate transaction", func(req driver.ClaimRequest) driver.ClaimResult {
				h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: &req, Timeout: hung})
				e.ok("Begin", err)
				if h != nil {
					e.ok("Rollback", h.Rollback(e.ctx))
				}
				if granted := res.Decision == driver.DecideClaimed; granted != (h != nil) {
					e.Errorf("Begin: %v, with a handle: %v", res.Decision, h != nil)
				}
				return res
			})
			decide("in the caller's transaction", func(req driver.ClaimRequest) driver.ClaimResult {
				tx := e.own()
				res, err := e.join(tx).Claim(e.ctx, req)
				e.ok("Claim", err)
				e.ok("the application's rollback", tx.Rollback(e.ctx))
				return res
			})
		}
	}
}

// checkRenewLocks renews one attempt in two transactions: the second one gets its answer only after the first one
// has ended, and so knows its result.
func checkRenewLocks[Tx any](e *txEnv[Tx]) {
	a := e.claimed(claimReq(e.key()))
	first, second := e.begin(nil), e.begin(nil)
	e.ok("Renew", errOf(first.Renew(e.ctx, a.renewal())))
	renewed := make(chan error, 1)
	go func() { renewed <- errOf(second.Renew(e.ctx, a.renewal())) }()
	select {
	case err := <-renewed:
		if err == nil {
			e.Errorf("the token was renewed while another transaction that had renewed it was open: it is not locked")
		}
		renewed <- err
	case <-time.After(100 * time.Millisecond): // it waits, or has not come so far: either is fine
	}
	first.commit(driver.CommitRequest{})
	if err := <-renewed; err != nil && e.txs.ClassifyTx(err) != driver.TxErrorRetry {
		e.Errorf("Renew after the other transaction has ended: %v", err)
	}
	second.rollback()
	a.completed("done")
}
