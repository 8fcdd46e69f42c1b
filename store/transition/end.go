package transition

import (
	"time"

	"github.com/everonce/everonce"
)

// Complete saves the result of the attempt that holds the record. It refuses with [everonce.ErrLeaseLost] if another
// attempt holds it, or none. A repeated completion changes nothing.
func Complete(rec *everonce.Record, req everonce.CompleteRequest, now time.Time) (next *everonce.Record, err error) {
	if rec != nil && rec.State == everonce.StateCompleted && rec.Token == req.Token && rec.Nonce == req.Nonce && rec.Format <= everonce.FormatVersion {
		return nil, nil
	}
	if err := held(rec, req.Token, req.Nonce); err != nil {
		return nil, err
	}
	next = copyOf(rec)
	complete(next, &req, now)
	return next, nil
}

func complete(rec *everonce.Record, req *everonce.CompleteRequest, now time.Time) {
	rec.State = everonce.StateCompleted
	rec.Result = req.Result
	rec.UnknownStep = ""
	rec.LeaseUntil = time.Time{}
	rec.UpdatedAt = now
	rec.CompletedAt = now
	rec.ResultUntil = now.Add(req.Lifetime.Retention)
	rec.PurgeAt = now.Add(req.Lifetime.Total())
}

// Record makes a completed record without a preceding claim, for the method of that name of [everonce.TxHandle]. It
// refuses with [everonce.ErrConflict] if there is a record that is neither released nor gone, or one that the claim's
// request could not have been granted.
func Record(rec *everonce.Record, claim everonce.ClaimRequest, done everonce.CompleteRequest, now time.Time) (next *everonce.Record, err error) {
	if rec != nil && !rec.GoneAt(now) && rec.State != everonce.StateReleased {
		return nil, everonce.ErrConflict
	}
	next, res, err := Claim(rec, claim, now)
	if err != nil || res.Decision != everonce.DecideClaimed {
		return nil, everonce.ErrConflict
	}
	complete(next, &done, now)
	return next, nil
}

// Release ends an attempt without a result. With a token it ends that attempt. Without one it ends the claim with
// that nonce, and if there is no record it leaves a released one, so that a delayed packet of the claim is refused.
// It reports a record that it may not touch as superseded. The only error is [everonce.ErrNewerRecord], for a record
// of a newer version.
func Release(rec *everonce.Record, req everonce.ReleaseRequest, now time.Time) (next *everonce.Record, res everonce.ReleaseResult, err error) {
	if rec != nil && rec.Format > everonce.FormatVersion && !rec.GoneAt(now) {
		return nil, res, everonce.ErrNewerRecord
	}
	byNonce := req.Token == 0
	own := rec != nil && rec.Nonce == req.Nonce && (byNonce || rec.Token == req.Token)
	switch {
	case own && rec.State == everonce.StateClaimed:
		next = copyOf(rec)
		release(next, &req, now)
	case own && rec.State != everonce.StateCompleted: // repeated
	case byNonce && (rec == nil || rec.GoneAt(now)):
		next = refusing(rec, &req, now)
	case byNonce && rec.State == everonce.StateReleased:
		next = copyOf(rec)
		next.Nonce = req.Nonce // the late packet of this claim is refused; the one before has ended long since
	default:
		res.Superseded = true
	}
	return next, res, nil
}

func release(rec *everonce.Record, req *everonce.ReleaseRequest, now time.Time) {
	tookOver := rec.Previous.State == everonce.StateAbandoned || rec.Previous.State == everonce.StateClaimed
	putBack := req.Token == 0 && tookOver // nobody has settled what the claim found
	rec.State = req.State
	if putBack {
		rec.State = everonce.StateAbandoned
	}
	if !putBack || req.Step != "" {
		rec.UnknownStep = req.Step
	}
	rec.LastError = req.ErrorClass
	rec.LeaseUntil = time.Time{}
	rec.UpdatedAt = now
	rec.PurgeAt = time.Time{}
	if rec.State == everonce.StateReleased || req.ExpireUnsettled {
		rec.PurgeAt = now.Add(req.Lifetime.Total())
	}
}

// refusing returns a released record, in place of one that is gone or was never there, that knows the nonce of a claim which did not
// arrive yet.
func refusing(gone *everonce.Record, req *everonce.ReleaseRequest, now time.Time) *everonce.Record {
	var last everonce.Token
	if gone != nil {
		last = gone.Token
	}
	return &everonce.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name,
		State: everonce.StateReleased, Token: nextToken(last, now), Nonce: req.Nonce,
		LastError: req.ErrorClass, Format: everonce.FormatVersion,
		CreatedAt: now, UpdatedAt: now, PurgeAt: now.Add(req.Lifetime.Total()),
	}
}
