package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
)

// Do executes an operation once, however many times it is called with the same key, for effects outside the store
// (guarded mode). It returns:
//
//   - The value (Executed, or Replayed if the work ran earlier).
//   - A [*PermanentError], equal each time (Rejected): the work failed permanently.
//   - The work's error (Failed): nothing happened, and the key may be tried again. Under [Reexecute] that is every
//     error that is not permanent.
//   - [ErrInProgress], [ErrMismatch], [ErrExpired], [ErrResultElided], [ErrUndecodable]: the record says so.
//   - [ErrOutcomeUnknown]: this or an earlier attempt ended, and it is unknown whether its effect happened.
//   - [ErrNotRecorded], with the value: the effect happened, but was not recorded. A permanent failure that was not
//     recorded is an [ErrStore] around its *PermanentError.
//   - [ErrLeaseLost]: another attempt or a settlement took over the record, and has no answer yet.
//   - [ErrStore]: the store failed before the work was called, or the work's error, also wrapped, was not recorded.
//   - The context's cause: ctx ended before the work was called (Failed), or during a wait (with ErrInProgress).
//   - [ErrInvalidKey], [ErrInvalidArgument], [ErrNested], [ErrInTransaction]: the call is wrong. Nothing ran.
//
// Errors other than the work's are [*Error]. A panic or Goexit of the work continues, and is an unknown outcome.
//
// The work's context ends with the caller's, or with the cause ErrLeaseLost. Do returns after the work has returned,
// and records how it ended even if ctx is over.
//
// Options: a Fingerprint, WithWait, WithPolicy, WithReconcile, WithLease, WithLifetime, WithSummary, WithCodec,
// EffectsInSteps, Unobserved.
func Do[T any](ctx context.Context, r *Receiver, key Key, work func(context.Context, *Attempt) (T, error), opts ...CallOption) (res Result[T], err error) {
	if r == nil || work == nil {
		return invalid[T](fmt.Errorf("%w: the receiver or the work is nil", ErrInvalidArgument))
	}
	var id RecordID
	if len(opts) == 0 && r.recalls(ctx, key) {
		id = r.recordID(key)
		if v, ok := recalled[T](ctx, r, id); ok {
			return Result[T]{Value: v, Outcome: Replayed}, nil
		}
	}
	op, err := r.prepare(ctx, key, id, opts, doOptions)
	if err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	ask, err := reconcilerOf[T](op.call)
	if err != nil {
		return invalid[T](err)
	}
	summarize, err := summaryOf[T](op.call)
	if err != nil {
		return invalid[T](err)
	}
	if op.observed() {
		o := op.observe(ctx, opDo, "")
		ctx = o.ctx
		defer func() { o.end(res.Outcome, err) }()
	}
	defer func() { op.warn(ctx, res.Outcome, res.Attempt, err) }()
	if err := op.checkPlace(nil); err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	if err := op.ready(ctx); err != nil {
		return errorResult[T](err)
	}
	if id == (RecordID{}) && op.recaller != nil && ctx.Err() == nil {
		rec, err := op.recaller.Recall(ctx, driver.RecallRequest{ID: op.id})
		if err == nil && rec.Found && !op.fingerprint.Conflicts(rec.Fingerprint) {
			op.foundRecord(rec.Owner, rec.CompletedAt, rec.Now)
			return replayed[T](&op, rec.Fingerprint, &rec.Result)
		}
	}
	var claim driver.ClaimResult
	started, err := op.acquire(ctx, &claim)
	if err != nil {
		return errorResult[T](err)
	}
	if claim.Decision != driver.DecideClaimed {
		return resultOf[T](&op, &claim)
	}
	a := newAttempt(ctx, &op, &claim)
	a.startBeat(started)
	return perform(a, work, ask, summarize)
}

func invalid[T any](err error) (Result[T], error) {
	return Result[T]{Outcome: Invalid}, &Error{Outcome: Invalid, Sentinel: err}
}

// errorResult returns an error with the outcome that it carries.
func errorResult[T any](err error) (Result[T], error) {
	var e *Error
	if errors.As(err, &e) {
		return Result[T]{Outcome: e.Outcome}, err
	}
	return Result[T]{Outcome: Failed}, err
}

// perform runs the work of an attempt and ends it, whichever way the work ends.
func perform[T any](a *Attempt, work func(context.Context, *Attempt) (T, error), ask reconciler[T], summarize func(T) []byte) (Result[T], error) {
	defer a.end()
	returned, asking := false, false
	defer func() {
		if !returned { // a panic or Goexit, which continues
			a.unwound(asking)
		}
	}()
	if a.call.policy == Reconcile && a.tookOver() {
		asking = true
		verdict, err := ask(&a.ctx, a.abandoned(""))
		asking = false
		if err == nil && verdict.kind == verdictNotHappened && (a.lapsed() || a.ctx.Err() != nil) { // the work must not start with an ended context
			returned = true
			res, err := conclude[T](a, endedNotDone, verdict.value, a.fail(Failed, context.Cause(&a.ctx), nil), nil)
			res.Attempt = 0 // as when the context ends before the claim
			return res, err
		}
		if err != nil || verdict.kind != verdictNotHappened {
			returned = true
			return reconciled(a, verdict, err, summarize)
		}
	}
	value, err := work(&a.ctx, a)
	a.closeSteps()
	how, failure := a.judge(err)
	returned = true
	if how == endedRejected {
		return rejected[T](a, failure)
	}
	if a.ev != nil && how == endedDone {
		a.ev.UnusedSteps = a.seenSteps().unused()
	}
	return conclude(a, how, value, err, summarize)
}

// reconciled ends an attempt according to a reconciler's answer.
func reconciled[T any](a *Attempt, verdict Verdict[T], err error, summarize func(T) []byte) (Result[T], error) {
	if err == nil && verdict.kind == verdictHappened {
		res, err := conclude(a, endedDone, verdict.value, nil, summarize)
		res.Reconciled = res.Outcome == Executed || res.Outcome == NotRecorded // otherwise the answer is another attempt's
		if a.ev != nil {
			a.ev.Reconciled = res.Outcome == Executed
		}
		return res, err
	}
	if err == nil {
		err = errStillUnknown
	}
	return conclude[T](a, endedUnknown, verdict.value, err, nil)
}
