package drivertest

import (
	"github.com/everonce/everonce/driver"
)

// checkTxGone has a transaction record a key over a record that is gone by time, and was not purged, with a step
// that was done. When the key is new once more, its steps are new: that step would be taken for done, and its
// effect be missing.
func checkTxGone[Tx any](e *txEnv[Tx]) {
	ways := map[string]func(o *open[Tx]){
		"claimed first": func(o *open[Tx]) { o.commit(driver.CommitRequest{Complete: o.completion("done")}) },
		"before the commit": func(o *open[Tx]) {
			e.ok("Complete", errOf(o.Complete(e.ctx, *o.completion("done"))))
			o.commit(driver.CommitRequest{})
		},
		"in a batch": func(o *open[Tx]) {
			e.ok("CommitAll", errOf(o.TxHandle.(driver.TxBatch).CommitAll(e.ctx, driver.CommitAllRequest{Completions: []driver.CompleteRequest{*o.completion("done")}})))
		},
	}
	if !e.caps.TxBatch {
		delete(ways, "in a batch")
	}
	for how, commit := range ways {
		req := claimReq(e.key())
		req.Lifetime = driver.Lifetime{Retention: short}
		old := e.claimed(req)
		old.stepped("mail", driver.StepDone)
		old.completed("before")
		e.pass(short)
		claim := txClaimReq(old.key())
		claim.Lifetime = req.Lifetime
		o := e.begin(claim)
		o.apply(req.Name)
		commit(o)
		e.pass(short)
		next := e.claimed(claimReq(old.key()))
		next.stepped("mail", driver.StepOpen)
		if rec := e.get(old.key()); len(rec.Steps) != 1 || rec.Steps[0].State != driver.StepOpen {
			e.Errorf("%s: the steps of the new operation are %+v, want the one that was begun, open", how, rec.Steps)
		}
	}
}
