package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
)

// Result is the result of one call.
type Result[T any] struct {
	// Value is the work's value, run now or replayed. It is T's zero value unless the error is nil or
	// [ErrNotRecorded].
	Value T
	// Outcome is always set.
	Outcome Outcome
	// Attempt is the number of the attempt that ran in this call; 0 if none did.
	Attempt int
	// Provisional says that the result is in the caller's transaction, and holds once that has committed.
	Provisional bool
	// Reconciled says that asking found the effect of an earlier attempt; the work did not run in this call.
	Reconciled bool
}

// Do executes an operation once, however many times it is called with the same key, for effects outside the store
// (guarded mode). It returns:
//
//   - The value, with the outcome Executed or Replayed: the work ran now, or had run earlier.
//   - An equal [*PermanentError], Rejected: the work was refused for good, now or earlier.
//   - The work's error, Failed: the work proved that nothing took hold. The key may be tried again. Under the policy
//     Reexecute every error that is not permanent is returned so.
//   - [ErrInProgress] with a retry-after, [ErrMismatch], [ErrExpired], [ErrResultElided], [ErrUndecodable]: what the
//     record says.
//   - [ErrOutcomeUnknown]: an attempt, this one or an earlier one, ended, and nobody knows whether its effect
//     happened: under Refuse and Reconcile, or if a step of it was refused as unknown. If it was this attempt, its
//     error is wrapped. With a retry-after calling again asks or goes on; without one it has to be settled.
//   - [ErrNotRecorded] with the value, NotRecorded: the effect happened and could not be recorded. A refusal for good
//     that could not be recorded is [ErrStore] around its *PermanentError, with the same outcome.
//   - [ErrLeaseLost]: another attempt or a settlement took the record, and has no answer yet. If it has one, Do
//     returns that: the answer of the attempt that lost is dropped.
//   - [ErrStore]: the store failed before the work was called; or the work's own error, which is wrapped too, could
//     not be recorded.
//   - The context's cause, Failed: ctx ended before the work was called; or the lease was lost ([ErrLeaseLost]) while
//     a reconciler found out that nothing had happened. If ctx ended while the call waited for another attempt, it is
//     ErrInProgress with the cause.
//   - [ErrInvalidKey], [ErrInvalidArgument], [ErrNested], [ErrInTransaction]: the call is wrong. Nothing ran.
//
// Options: a Fingerprint, WithWait, WithPolicy, WithReconcile, WithLease, WithLifetime, WithSummary, WithCodec,
// EffectsInSteps, Unobserved.
//
// Errors that are not the work's own are [*Error]. A panic or Goexit of the work goes on unwinding, and the attempt
// ends as it does after an unmarked error.
//
// The work's context ends with the caller's, and with the cause ErrLeaseLost when the lease is lost. The attempt does
// not end with it: it ends only when its work has returned, and its completion does not depend on the caller's
// context. Do returns after the work has returned.
func Do[T any](ctx context.Context, r *Receiver, key Key, work func(context.Context, *Attempt) (T, error), opts ...CallOption) (res Result[T], err error) {
	if r == nil || work == nil {
		return invalid[T](fmt.Errorf("%w: the receiver or the work is nil", ErrInvalidArgument))
	}
	var id RecordID
	if len(opts) == 0 && r.recalls(ctx, key) {
		id = r.recordID(key)
		if v, ok := recalled[T](r, id); ok {
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
		return failed[T](err)
	}
	if id == (RecordID{}) && op.recaller != nil && ctx.Err() == nil {
		if rec, ok := op.recaller.Recall(op.id); ok && !op.fingerprint.Conflicts(rec.Fingerprint) {
			return replayed[T](&op, rec.Fingerprint, &rec.Result)
		}
	}
	var claim driver.ClaimResult
	started, err := op.acquire(ctx, &claim)
	if err != nil {
		return failed[T](err)
	}
	if claim.Decision != driver.DecideClaimed {
		return settled[T](&op, &claim)
	}
	a := newAttempt(ctx, &op, &claim)
	a.startBeat(started)
	return perform(a, work, ask, summarize)
}

func invalid[T any](err error) (Result[T], error) {
	return Result[T]{Outcome: Invalid}, &Error{Outcome: Invalid, Sentinel: err}
}

// failed returns an error with the outcome that it carries.
func failed[T any](err error) (Result[T], error) {
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
		if !returned { // a panic or Goexit, which goes on
			a.unwound(asking)
		}
	}()
	if a.call.policy == Reconcile && a.tookOver() {
		asking = true
		verdict, err := ask(&a.ctx, a.abandoned(""))
		asking = false
		if err == nil && verdict.kind == verdictNotHappened && (a.lapsed() || a.ctx.Err() != nil) { // the work is not called with a context that is over
			returned = true
			res, err := conclude[T](a, endedNotDone, verdict.value, a.fail(Failed, context.Cause(&a.ctx), nil), nil)
			res.Attempt = 0 // as where the context ends before the claim
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

// reconciled ends an attempt by a reconciler's answer.
func reconciled[T any](a *Attempt, verdict Verdict[T], err error, summarize func(T) []byte) (Result[T], error) {
	if err == nil && verdict.kind == verdictHappened {
		res, err := conclude(a, endedDone, verdict.value, nil, summarize)
		res.Reconciled = res.Outcome == Executed || res.Outcome == NotRecorded // or it is somebody else's answer
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

// ended is how the work of an attempt ended.
type ended uint8

const (
	endedDone ended = iota
	endedRejected
	endedNotDone
	endedUnknown
)

// judge tells how an error of the work ended it, and the failure of one that is refused for good.
func (a *Attempt) judge(err error) (how ended, failure *PermanentError) {
	if a.seenSteps().refused() != "" {
		return endedUnknown, nil
	}
	how, failure = a.set.judge(err)
	if how == endedUnknown && a.call.effectsInSteps && !a.seenSteps().anyOpen() {
		how = endedNotDone
	}
	return how, failure
}

// judge reads the marks of an error, the classifier's included, which is asked once: it may count. The error of a step was
// classified there: what is known of the step says nothing of the work around it.
func (s *settings) judge(err error) (how ended, failure *PermanentError) {
	if err == nil {
		return endedDone, nil
	}
	how, failure = marksIn(err)
	if how == endedUnknown && s.Classify != nil && !crossedBorder(err) {
		how, failure = marksIn(s.Classify(err))
	}
	if failure != nil {
		failure = failure.normalized(s.MaxResult)
	}
	return how, failure
}

// rejected ends an attempt whose work was refused for good.
func rejected[T any](a *Attempt, failure *PermanentError) (Result[T], error) {
	res := Result[T]{Attempt: a.number, Outcome: Rejected}
	failure, err := failure.savedBy(a.complete)
	if err != nil {
		return unrecorded(a, res, err, failure)
	}
	return res, failure
}

// conclude writes how an attempt ended that was not refused for good, and returns what the caller gets.
func conclude[T any](a *Attempt, how ended, value T, cause error, summarize func(T) []byte) (Result[T], error) {
	res := Result[T]{Attempt: a.number}
	switch how {
	case endedDone:
		saved, elided := encode(a.core, a.call, value, summarize)
		if a.ev != nil {
			a.ev.Elided = elided
		}
		res.Value, res.Outcome = value, Executed
		if err := a.complete(saved); err != nil {
			return unrecorded(a, res, err, nil)
		}
		return res, nil
	case endedUnknown:
		if state, step := a.unknownEnd(); state == driver.StateAbandoned {
			class := errorClass(cause)
			if a.seenSteps().refused() != "" {
				class = classStep
			}
			if err := a.release(driver.StateAbandoned, class, step); errors.Is(err, ErrLeaseLost) {
				return superseded[T](a, cause)
			} // what is not written for another reason lapses into the same state
			res.Outcome = Unknown
			e := a.unknown(step, a.toSettle(step), cause)
			if inner, ok := cause.(*Error); ok && inner.Sentinel == ErrOutcomeUnknown && inner.Step == step { //nolint:errorlint // the step's own error, as it was returned
				e.Cause = inner.Cause // it says the same
			}
			return res, e
		}
	}
	res.Outcome = Failed
	if err := a.release(driver.StateReleased, errorClass(cause), ""); errors.Is(err, ErrLeaseLost) {
		return superseded[T](a, cause)
	} else if err != nil {
		return res, a.fail(Failed, ErrStore, errors.Join(cause, err))
	}
	return res, a.bordered(cause)
}

// unrecorded is the end of an attempt whose completion was refused or never stored. failure is how it was refused
// for good, if it was: only without one did the effect happen, which is what [ErrNotRecorded] says.
func unrecorded[T any](a *Attempt, res Result[T], err error, failure *PermanentError) (Result[T], error) {
	if errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrAttemptEnded) {
		return superseded[T](a, nil)
	}
	res.Outcome = NotRecorded
	if failure != nil {
		return res, a.fail(NotRecorded, ErrStore, errors.Join(failure, err))
	}
	return res, a.fail(NotRecorded, ErrNotRecorded, ofStore(err))
}

// superseded is the end of an attempt that lost its record: its own answer is dropped, and what the record
// says is the answer, if it says something yet. cause is how the attempt failed, if it did.
func superseded[T any](a *Attempt, cause error) (Result[T], error) {
	if a.ev != nil {
		a.ev.LeaseLost = true
	}
	ctx, cancel := a.detached(a.set.StoreTimeout)
	defer cancel()
	if claim, err := a.peek(ctx); err == nil && (claim.Decision == driver.DecideReplay || claim.Decision == driver.DecideExpired) {
		return settled[T](&a.operation, &claim)
	}
	return Result[T]{Outcome: LeaseLost, Attempt: a.number}, a.fail(LeaseLost, ErrLeaseLost, cause)
}

// unknownEnd says what an unknown end makes of the record: released under Reexecute, else abandoned; and
// abandoned, naming the step, where a step was refused.
func (a *Attempt) unknownEnd() (state driver.State, step string) {
	step = a.seenSteps().refused()
	if step == "" && a.call.effectsInSteps && a.call.policy != Reexecute {
		step = a.seenSteps().firstOpen()
	}
	if step == "" && a.call.policy == Reexecute {
		return driver.StateReleased, ""
	}
	return driver.StateAbandoned, step
}

// unwound ends an attempt whose work did not return, or whose reconciler did not: that one has settled nothing.
func (a *Attempt) unwound(asking bool) {
	state, step := a.unknownEnd()
	if step == "" && a.call.effectsInSteps && !asking && !a.seenSteps().anyOpen() {
		state = driver.StateReleased
	}
	_ = a.release(state, classUnwound, step) //nolint:errcheck // the panic goes on; what is not written lapses
	outcome := Unknown
	if state == driver.StateReleased {
		outcome = Failed
	}
	a.warn(&a.ctx, outcome, a.number, errUnwound)
	if a.ev != nil {
		a.ev.Outcome, a.ev.Err = outcome, errUnwound
	}
}

var errUnwound = errors.New("everonce: the work panicked or exited its goroutine")

// What Record.LastError may be, if it is not empty: the list is closed.
const (
	classError    = "error"        // the work returned an error that says nothing
	classNotDone  = "not_done"     // it returned one that proves that nothing took hold
	classDeadline = "deadline"     // context.DeadlineExceeded is in its error
	classCanceled = "canceled"     // context.Canceled is
	classLease    = "lease_lost"   // ErrLeaseLost is
	classStep     = "step_unknown" // ErrOutcomeUnknown is, or a step of it was refused as unknown
	classUnwound  = "panic"        // the work panicked, or exited its goroutine
	classClaim    = "claim"        // the claim was taken back, and the work was not called
	classSettle   = "settle"       // a settlement could not be finished, and the record was put back
	classSettled  = "settled"      // a settlement ended it: the operation as not done, or a step of it
)

func errorClass(err error) string {
	switch {
	case IsNotDone(err):
		return classNotDone
	case errors.Is(err, ErrOutcomeUnknown):
		return classStep
	case errors.Is(err, ErrLeaseLost):
		return classLease
	case errors.Is(err, context.DeadlineExceeded):
		return classDeadline
	case errors.Is(err, context.Canceled):
		return classCanceled
	}
	return classError
}
