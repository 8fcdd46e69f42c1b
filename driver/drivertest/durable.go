package drivertest

import (
	"github.com/everonce/everonce/driver"
)

// durableChecks test the promise of an answer: an acknowledged write is visible to every reader (rule 15). Whether
// it also survives a loss of power is beyond a test in one process.
func durableChecks() []check {
	return []check{
		{name: "Rule15/AcknowledgedWritesAreVisible", run: func(e *env) {
			peer := e.to(e.reporter, e.h.Peer)
			for _, pair := range [][2]*env{{e, peer}, {peer, e}} {
				writer, reader := pair[0], pair[1]
				a := writer.claimed(claimReq(e.key()))
				if rec := reader.get(a.key()); rec.State != driver.StateClaimed || rec.Nonce != a.req.Nonce {
					e.Fatalf("after a claim another handle reads %v", rec.State)
				}
				a.stepped("mail", driver.StepOpen)
				if rec := reader.get(a.key()); len(rec.Steps) != 1 {
					e.Fatalf("after a step another handle reads %d steps", len(rec.Steps))
				}
				until := reader.get(a.key()).LeaseUntil
				longer := a.renewal()
				longer.Lease = 2 * long
				e.is("Renew", a.renew(longer), nil)
				if rec := reader.get(a.key()); !rec.LeaseUntil.After(until) {
					e.Fatalf("after a renewal another handle reads the lease before it")
				}
				a.released(driver.StateReleased)
				if rec := reader.get(a.key()); rec.State != driver.StateReleased {
					e.Fatalf("after a release another handle reads %v", rec.State)
				}
				b := writer.claimed(a.taking(driver.TakeNone))
				b.completed("done")
				res := reader.decided(a.taking(driver.TakeNone), driver.DecideReplay)
				if string(res.Record.Result.Data) != "done" {
					e.Fatalf("after a completion another handle replays %d bytes", len(res.Record.Result.Data))
				}
			}
		}},
	}
}
