package drivertest

import (
	"github.com/everonce/everonce/driver"
)

func decidesAtClaim(c Capabilities) bool { return !c.DecidesAtCommit }

// checkTxCommits has a key claimed by several transactions, and by an attempt outside of them: whatever the order,
// one commits, and with it one effect.
func checkTxCommits[Tx any](e *txEnv[Tx]) {
	for first := range 3 {
		k := e.key()
		open := []*open[Tx]{e.begin(txClaimReq(k)), e.process(1).begin(txClaimReq(k))}
		for _, o := range open {
			o.apply(k.ID)
		}
		effects := 1
		if first == len(open) { // the guarded attempt is first, and is released: a claim before it is still none
			e.claimed(claimReq(k)).released(driver.StateReleased)
			effects = 0
		} else {
			open[first].commit(driver.CommitRequest{Complete: open[first].completion("done")})
		}
		for i, o := range open {
			if i != first {
				e.is("Commit of a key that another one had first", errOf(o.Commit(e.ctx, driver.CommitRequest{Complete: o.completion("late")})), driver.ErrConflict)
			}
		}
		e.counted(k.ID, effects)
		if effects == 1 {
			if res := e.notGranted(txClaimReq(k), driver.DecideReplay); string(res.Record.Result.Data) != "done" {
				e.Errorf("the result comes from the commit that was refused")
			}
		}
	}
}
