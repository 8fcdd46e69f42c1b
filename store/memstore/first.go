package memstore

import (
	"github.com/everonce/everonce/driver"
)

// A first attempt that completes is what nearly all operations are. What package transition makes of a record
// is done here in the entry itself, without the making of a record; everything else goes that way. The suite
// compares both.

// begin makes e, which is new, the entry of a first attempt: as [transition.Claim] does where there is no record.
func (e *entry) begin(req *driver.ClaimRequest, now micros) {
	e.scope, e.name, e.owner = req.Scope, req.Name, req.Owner
	e.state, e.format, e.attempt = driver.StateClaimed, driver.FormatVersion, 1
	e.token, e.nonce = driver.Token(max(now, 1)), req.Nonce
	e.created, e.claimed, e.updated = now, now, now
	e.lease = now.add(req.Lease)
	if req.ExpireUnsettled {
		e.purge = now.add(req.Lifetime.Total())
	}
	e.print = req.Fingerprint
}

// complete does what [transition.Complete] does for a first attempt that holds the record. It reports false, and
// does nothing, where there is more to it.
func (e *entry) complete(req *driver.CompleteRequest, now micros) bool {
	if e.rare != nil || e.format > driver.FormatVersion ||
		e.state != driver.StateClaimed || e.token != req.Token || e.nonce != req.Nonce {
		return false
	}
	e.state, e.lease = driver.StateCompleted, 0
	e.kind, e.codec, e.data, e.summary = req.Result.Kind, req.Result.Codec, req.Result.Data, req.Result.Summary
	e.updated, e.completed = now, now
	e.result, e.purge = now.add(req.Lifetime.Retention), now.add(req.Lifetime.Total())
	return true
}
