package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// Claim returns the decision of [driver.Decide] and the record to write. Its errors are [driver.ErrAttemptEnded] and
// [driver.ErrNewerRecord].
//
// A claim that finds its own nonce is a repeated call: it renews the lease and changes nothing else. Otherwise the
// token increases. The creation time, scope, name, steps and unknown step of an existing record are kept, and so is
// its fingerprint if the request has none.
func Claim(rec *driver.Record, req driver.ClaimRequest, now time.Time) (next *driver.Record, res driver.ClaimResult, err error) {
	res.Now = now
	if rec != nil {
		res.Record = *rec
	}
	switch res.Decision = driver.Decide(rec, req, now); res.Decision {
	case driver.DecideClaimed:
		next = copyOf(&res.Record)
		begin(next, rec != nil, &req, now)
		res.Record = *next
	case driver.DecideAbsent:
		res.Record = driver.Record{}
	case driver.DecideEnded:
		err = driver.ErrAttemptEnded
	case driver.DecideNewer:
		err = driver.ErrNewerRecord
	default: // the record is the answer
	}
	return next, res, err
}

// begin makes rec the record of the request's attempt.
func begin(rec *driver.Record, exists bool, req *driver.ClaimRequest, now time.Time) {
	again := exists && !rec.GoneAt(now)
	switch {
	case again && rec.State == driver.StateClaimed && rec.Nonce == req.Nonce: // the same claim
	case again:
		if rec.State == driver.StateClaimed { // it lapsed: no error ended it
			rec.LastError = ""
		}
		rec.Previous = driver.Previous{State: rec.StateAt(now), Owner: rec.Owner, ClaimedAt: rec.ClaimedAt}
		if !req.Fingerprint.IsZero() {
			rec.Fingerprint = req.Fingerprint
		}
		take(rec, req, now)
	default:
		if exists {
			*rec = driver.Record{Token: rec.Token}
		}
		rec.ID, rec.Scope, rec.Name = req.ID, req.Scope, req.Name
		rec.Fingerprint, rec.CreatedAt = req.Fingerprint, now
		take(rec, req, now)
	}
	rec.UpdatedAt = now
	rec.LeaseUntil = now.Add(req.Lease)
	rec.PurgeAt = time.Time{}
	if req.ExpireUnsettled {
		rec.PurgeAt = now.Add(req.Lifetime.Total())
	}
}

func take(rec *driver.Record, req *driver.ClaimRequest, now time.Time) {
	rec.Format = driver.FormatVersion
	rec.State = driver.StateClaimed
	rec.Token = nextToken(rec.Token, now)
	rec.Nonce = req.Nonce
	rec.Owner = req.Owner
	rec.Attempt++
	rec.ClaimedAt = now
}
