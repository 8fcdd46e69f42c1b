package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// Complete saves the result of the attempt that holds the record. It returns [driver.ErrLeaseLost] if that attempt does
// not hold it. A repeated completion changes nothing.
func Complete(rec *driver.Record, req driver.CompleteRequest, now time.Time) (next *driver.Record, err error) {
	if rec != nil && rec.State == driver.StateCompleted && rec.Token == req.Token && rec.Nonce == req.Nonce && rec.Format <= driver.FormatVersion {
		return nil, nil
	}
	if err := held(rec, req.Token, req.Nonce); err != nil {
		return nil, err
	}
	next = copyOf(rec)
	complete(next, &req, now)
	return next, nil
}

func complete(rec *driver.Record, req *driver.CompleteRequest, now time.Time) {
	rec.State = driver.StateCompleted
	rec.Result = req.Result
	rec.UnknownStep = ""
	rec.LeaseUntil = time.Time{}
	rec.UpdatedAt = now
	rec.CompletedAt = now
	rec.ResultUntil = now.Add(req.Lifetime.Retention)
	rec.PurgeAt = now.Add(req.Lifetime.Total())
}

// Record returns a completed record without a preceding claim, for TxHandle.Record. It returns [driver.ErrConflict] if
// there is a record that is neither released nor gone, or if the claim would not have been granted.
func Record(rec *driver.Record, claim driver.ClaimRequest, done driver.CompleteRequest, now time.Time) (next *driver.Record, err error) {
	if rec != nil && !rec.GoneAt(now) && rec.State != driver.StateReleased {
		return nil, driver.ErrConflict
	}
	next, res, err := Claim(rec, claim, now)
	if err != nil || res.Decision != driver.DecideClaimed {
		return nil, driver.ErrConflict
	}
	complete(next, &done, now)
	return next, nil
}

// Release ends an attempt without a result. With a token it ends that attempt. Without a token it ends the claim with
// that nonce; if there is no record, it returns a released one, so that the claim is refused if it arrives late. If
// another attempt or a completion came first, the result is Superseded. The only error is [driver.ErrNewerRecord].
func Release(rec *driver.Record, req driver.ReleaseRequest, now time.Time) (next *driver.Record, res driver.ReleaseResult, err error) {
	if rec != nil && rec.Format > driver.FormatVersion && !rec.GoneAt(now) {
		return nil, res, driver.ErrNewerRecord
	}
	byNonce := req.Token == 0
	own := rec != nil && rec.Nonce == req.Nonce && (byNonce || rec.Token == req.Token)
	switch {
	case own && rec.State == driver.StateClaimed:
		next = copyOf(rec)
		release(next, &req, now)
	case own && rec.State != driver.StateCompleted: // repeated
	case byNonce && (rec == nil || rec.GoneAt(now)):
		next = refusing(rec, &req, now)
	case byNonce && rec.State == driver.StateReleased:
		next = copyOf(rec)
		next.Nonce = req.Nonce // so that this claim is refused if it arrives late; the previous one has ended
	default:
		res.Superseded = true
	}
	return next, res, nil
}

func release(rec *driver.Record, req *driver.ReleaseRequest, now time.Time) {
	tookOver := rec.Previous.State == driver.StateAbandoned || rec.Previous.State == driver.StateClaimed
	putBack := req.Token == 0 && tookOver // the record that the claim found is still unsettled
	rec.State = req.State
	if putBack {
		rec.State = driver.StateAbandoned
	}
	if !putBack || req.Step != "" {
		rec.UnknownStep = req.Step
	}
	rec.LastError = req.ErrorClass
	rec.LeaseUntil = time.Time{}
	rec.UpdatedAt = now
	rec.PurgeAt = time.Time{}
	if rec.State == driver.StateReleased || req.ExpireUnsettled {
		rec.PurgeAt = now.Add(req.Lifetime.Total())
	}
}

// refusing returns a released record with the nonce of a claim that has not arrived, so that it is refused. It replaces
// a record that is gone, or none.
func refusing(gone *driver.Record, req *driver.ReleaseRequest, now time.Time) *driver.Record {
	var last driver.Token
	if gone != nil {
		last = gone.Token
	}
	return &driver.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name,
		State: driver.StateReleased, Token: nextToken(last, now), Nonce: req.Nonce,
		LastError: req.ErrorClass, Format: driver.FormatVersion,
		CreatedAt: now, UpdatedAt: now, PurgeAt: now.Add(req.Lifetime.Total()),
	}
}
