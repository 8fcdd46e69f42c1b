package transition

import (
	"time"

	"github.com/everonce/everonce"
)

// Claim answers a claim: it returns what [everonce.Decide] decides, and the record that follows from it. It refuses
// with [everonce.ErrAttemptEnded] and [everonce.ErrNewerRecord].
//
// A claim that finds its own nonce is the same claim again: its lease is renewed and nothing else changes. Otherwise
// the token grows, and if there was a record its creation, scope, name, steps and unknown step are kept; so is its
// fingerprint if the request has none.
func Claim(rec *everonce.Record, req everonce.ClaimRequest, now time.Time) (next *everonce.Record, res everonce.ClaimResult, err error) {
	res.Now = now
	if rec != nil {
		res.Record = *rec
	}
	switch res.Decision = everonce.Decide(rec, req, now); res.Decision {
	case everonce.DecideClaimed:
		next = copyOf(&res.Record)
		begin(next, rec != nil, &req, now)
		res.Record = *next
	case everonce.DecideAbsent:
		res.Record = everonce.Record{}
	case everonce.DecideEnded:
		err = everonce.ErrAttemptEnded
	case everonce.DecideNewer:
		err = everonce.ErrNewerRecord
	default: // the record is the answer
	}
	return next, res, err
}

// begin makes rec the record of the request's attempt.
func begin(rec *everonce.Record, exists bool, req *everonce.ClaimRequest, now time.Time) {
	again := exists && !rec.GoneAt(now)
	switch {
	case again && rec.State == everonce.StateClaimed && rec.Nonce == req.Nonce: // the same claim
	case again:
		if rec.State == everonce.StateClaimed { // its lease ended it, not an error
			rec.LastError = ""
		}
		rec.Previous = everonce.Previous{State: rec.StateAt(now), Owner: rec.Owner, ClaimedAt: rec.ClaimedAt}
		if !req.Fingerprint.IsZero() {
			rec.Fingerprint = req.Fingerprint
		}
		take(rec, req, now)
	default:
		if exists {
			*rec = everonce.Record{Token: rec.Token}
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

func take(rec *everonce.Record, req *everonce.ClaimRequest, now time.Time) {
	rec.Format = everonce.FormatVersion
	rec.State = everonce.StateClaimed
	rec.Token = nextToken(rec.Token, now)
	rec.Nonce = req.Nonce
	rec.Owner = req.Owner
	rec.Attempt++
	rec.ClaimedAt = now
}
