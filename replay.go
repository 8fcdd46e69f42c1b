package everonce

import (
	"bytes"
	"context"
	"fmt"

	"github.com/everonce/everonce/driver"
)

// recalls reports whether a call without options may be answered by what the store recalls of its key, before
// anything else of the call is looked at. What is found under the key's ID proves the key valid.
func (r *Receiver) recalls(ctx context.Context, key Key) bool {
	return r.quick && r.identity.done.Load() && key.fits() && ctx.Err() == nil && placeOf(ctx) == nil
}

// recalled returns the value that a finished operation left. Where it is false, the claim will tell.
func recalled[T any](r *Receiver, id RecordID) (v T, ok bool) {
	saved, ok := r.recaller.Recall(id)
	if !ok || saved.Result.Kind != driver.ResultValue {
		return v, false
	}
	v, err := decode[T](&r.defaults, &saved.Result)
	return v, err == nil
}

// settled returns what a record says that could not be claimed.
func settled[T any](op *operation, claim *driver.ClaimResult) (Result[T], error) {
	if claim.Decision != driver.DecideReplay {
		op.compareAlg(claim.Record.Fingerprint)
		e := op.refusal(claim)
		return Result[T]{Outcome: e.Outcome}, e
	}
	return replayed[T](op, claim.Record.Fingerprint, &claim.Record.Result)
}

// replayed returns a saved result, whose fingerprint has been compared.
func replayed[T any](op *operation, saved driver.Fingerprint, result *driver.SavedResult) (res Result[T], err error) {
	op.compareAlg(saved)
	res.Value, res.Outcome, err = replay[T](op, result)
	return res, err
}

// compareAlg tells the observer that the fingerprints are of two kinds, and so were not compared.
func (op *operation) compareAlg(saved driver.Fingerprint) {
	if op.ev != nil {
		op.ev.AlgChanged = !op.fingerprint.IsZero() && !saved.IsZero() && op.fingerprint.Alg != saved.Alg
	}
}

// replay returns a saved result as the first caller got it, decoded by the call's codec or a built-in one.
func replay[T any](op *operation, saved *driver.SavedResult) (v T, o Outcome, err error) {
	switch saved.Kind {
	case driver.ResultValue:
		if v, err = decode[T](op.call, saved); err != nil {
			e := op.fail(StoreFailed, ErrUndecodable, err)
			e.Kind = saved.Kind
			return v, StoreFailed, e
		}
		return v, Replayed, nil
	case driver.ResultFailure:
		p, err := loadFailure(*saved)
		if err != nil {
			return v, StoreFailed, op.fail(StoreFailed, ErrUndecodable, err)
		}
		return v, Rejected, p
	case driver.ResultElided:
		e := op.fail(Elided, ErrResultElided, nil)
		e.Summary, e.Kind = bytes.Clone(saved.Summary), saved.Kind
		return v, Elided, e
	}
	return v, StoreFailed, op.fail(StoreFailed, ErrStore, fmt.Errorf("%w: a completed record without a result", driver.ErrCorruptRecord))
}
