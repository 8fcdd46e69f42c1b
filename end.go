package everonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// ended is how the work of an attempt ended.
type ended uint8

const (
	endedDone ended = iota
	endedRejected
	endedNotDone
	endedUnknown
)

// judge returns how an error of the work ended the attempt, and the failure if it is permanent.
func (a *Attempt) judge(err error) (how ended, failure *PermanentError) {
	if a.seenSteps().refusedStep() != "" {
		return endedUnknown, nil
	}
	how, failure = a.set.judge(err)
	if how == endedUnknown && a.call.effectsInSteps && !a.seenSteps().anyOpen() {
		how = endedNotDone
	}
	return how, failure
}

// judge reads the marks of an error, including the classifier's. It calls the classifier once, which may count its
// calls. The error of a step was classified in the step: what is known about the step says nothing about the work
// around it.
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

// rejected ends an attempt whose work failed permanently.
func rejected[T any](a *Attempt, failure *PermanentError) (Result[T], error) {
	res := Result[T]{Attempt: a.number, Outcome: Rejected}
	failure, err := failure.savedBy(a.complete)
	if err != nil {
		return unrecorded(a, res, err, failure)
	}
	return res, failure
}

// conclude records how an attempt ended that did not fail permanently, and returns the caller's result.
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
			if a.seenSteps().refusedStep() != "" {
				class = classStep
			}
			if err := a.release(driver.StateAbandoned, class, step); errors.Is(err, ErrLeaseLost) {
				return superseded[T](a, cause)
			} // if the write fails otherwise, the lease lapses into the same state
			res.Outcome = Unknown
			e := a.unknown(step, a.toSettle(step), cause)
			if inner, ok := cause.(*Error); ok && inner.Sentinel == ErrOutcomeUnknown && inner.Step == step { //nolint:errorlint // the step's own error, as it was returned
				e.Cause = inner.Cause // the sentinel and the step are the same
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
	return res, a.asNested(cause)
}

// unrecorded returns the result of an attempt whose completion was refused or never stored. failure is the
// permanent failure, if any: only without one did the effect happen, as [ErrNotRecorded] says.
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

// superseded returns the result of an attempt that lost its record: its own answer is dropped in favour of the
// record's, if the record has one yet. cause is the attempt's own error, if any.
func superseded[T any](a *Attempt, cause error) (Result[T], error) {
	if a.ev != nil {
		a.ev.LeaseLost = true
	}
	ctx, cancel := a.detached(a.set.StoreTimeout)
	defer cancel()
	if claim, err := a.peek(ctx); err == nil && (claim.Decision == driver.DecideReplay || claim.Decision == driver.DecideExpired) {
		return resultOf[T](&a.operation, &claim)
	}
	return Result[T]{Outcome: LeaseLost, Attempt: a.number}, a.fail(LeaseLost, ErrLeaseLost, cause)
}

// unknownEnd returns the state for an attempt whose end is unknown: released under Reexecute, else abandoned. If a
// step was refused, it is abandoned with the name of the step.
func (a *Attempt) unknownEnd() (state driver.State, step string) {
	step = a.seenSteps().refusedStep()
	if step == "" && a.call.effectsInSteps && a.call.policy != Reexecute {
		step = a.seenSteps().firstOpen()
	}
	if step == "" && a.call.policy == Reexecute {
		return driver.StateReleased, ""
	}
	return driver.StateAbandoned, step
}

// unwound ends an attempt whose work, or whose reconciler, did not return. Such a reconciler has settled nothing.
func (a *Attempt) unwound(asking bool) {
	state, step := a.unknownEnd()
	if step == "" && a.call.effectsInSteps && !asking && !a.seenSteps().anyOpen() {
		state = driver.StateReleased
	}
	_ = a.release(state, classUnwound, step) //nolint:errcheck // the panic continues; without this write the lease lapses
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

// Values of Record.LastError, besides the empty one. The list is closed.
const (
	classError    = "error"        // the work returned an error that says nothing
	classNotDone  = "not_done"     // it returned one that proves that nothing happened
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

// complete saves a result until it is stored or refused, even past the lease, within the completion limit. A value
// that the store refuses because of its size is elided. It returns nil, ErrLeaseLost, or the store's last error.
func (a *Attempt) complete(saved driver.SavedResult) error {
	a.beginEnd()
	req := driver.CompleteRequest{ID: a.id, Token: a.token, Nonce: a.nonce, Result: saved, Lifetime: a.call.lifetime}
	return a.persist(a.ev, a.set.CompletionTimeout, func(ctx context.Context) error {
		_, err := a.store.Complete(ctx, req)
		if errors.Is(err, driver.ErrTooLarge) && req.Result.Kind == driver.ResultValue {
			req.Result = withoutData(req.Result)
			if a.ev != nil {
				a.ev.Elided = "store"
			}
			_, err = a.store.Complete(ctx, req)
		}
		return err
	})
}

// release ends the attempt without a result. If a release fails, the claim lapses, which is a different state than
// released, so it is retried as long as a completion. Abandoning has the same effect as lapsing, so it is retried
// briefly. release returns ErrLeaseLost if another attempt has the record, but not after a try whose answer was
// lost: that attempt may have followed the release.
func (a *Attempt) release(state driver.State, class, step string) error {
	a.beginEnd()
	limit := a.set.CompletionTimeout
	if state == driver.StateAbandoned && step == "" {
		limit = min(limit, a.set.StoreTimeout)
	}
	req := driver.ReleaseRequest{
		ID: a.id, Scope: a.key.Scope, Name: a.key.ID, Token: a.token, Nonce: a.nonce, State: state, ErrorClass: class, Step: a.toSettle(step),
		Lifetime: a.call.lifetime,
	}
	first := true
	return a.persist(a.ev, limit, func(ctx context.Context) error {
		res, err := a.store.Release(ctx, req)
		if err == nil && res.Superseded && first {
			return ErrLeaseLost
		}
		first = false
		return err
	})
}

// toSettle returns the step if it must be settled before the next attempt, and "" if the next attempt asks about it
// again.
func (a *Attempt) toSettle(step string) string {
	if a.takesOver() && a.seenSteps().asksAgain(step) {
		return ""
	}
	return step
}

// persist repeats a write of the attempt until it succeeds, is refused for good, or the limit has passed. It does
// not end with the caller's context. ev, if not nil, counts the repetitions; it is the operation's or the step's,
// because steps may run concurrently.
func (a *Attempt) persist(ev *Observation, limit time.Duration, write func(context.Context) error) error {
	var err error
	if a.prompt { // a store in memory needs no separate context
		err = write(context.Background())
	} else {
		started := time.Now()
		one, cancel := a.detached(min(limit, a.set.StoreTimeout)) // the first try needs no second context
		err = write(one)
		cancel()
		limit -= time.Since(started)
	}
	if err == nil || isRefusal(err) {
		return err
	}
	all, cancel := a.detached(limit)
	defer cancel()
	for try := 1; err != nil && !isRefusal(err) && retry.Pause(all, retry.Backoff(try)) == nil; try++ {
		if ev != nil {
			ev.Retries++
		}
		one, cancel := context.WithTimeout(all, a.set.StoreTimeout)
		err = write(one)
		cancel()
	}
	return err
}

// isRefusal reports whether a write's error is final.
func isRefusal(err error) bool {
	return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrAttemptEnded) || errors.Is(err, driver.ErrTooLarge) ||
		errors.Is(err, driver.ErrNewerRecord) || errors.Is(err, driver.ErrCorruptRecord)
}

// NotDone marks an error as proof that nothing happened: the attempt is released, and the key may be tried again.
// errors.Is and errors.As see through it. NotDone(nil) is an error too. In joined errors the first mark applies. A
// mark on the error of a step, or of an operation inside the work, says nothing about the outer operation.
func NotDone(err error) error {
	if err == nil {
		err = errors.New("everonce: not done")
	}
	return &notDoneError{err}
}

type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// IsNotDone reports whether err as a whole is marked by [NotDone].
func IsNotDone(err error) bool { return readMarks(err) == endedNotDone }

// stepError names the step whose function failed.
type stepError struct {
	name string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %q: %v", e.name, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// nestedError marks the error of an operation inside the work of another one: that the inner operation took no
// effect says nothing about the outer one.
type nestedError struct{ err error }

func (e *nestedError) Error() string { return e.err.Error() }
func (e *nestedError) Unwrap() error { return e.err }

// asNested wraps the work's error if the operation is nested in another one.
func (op *operation) asNested(err error) error {
	if op.place == nil || err == nil {
		return err
	}
	return &nestedError{err}
}

// crossedBorder reports whether an error came out of a step or of another operation, and so describes that one.
func crossedBorder(err error) bool {
	var inStep *stepError
	var nested *nestedError
	var e *Error
	return errors.As(err, &inStep) || errors.As(err, &nested) || errors.As(err, &e)
}

// readMarks returns how the marks on an error say the work ended.
func readMarks(err error) ended {
	how, _ := marksIn(err) //nolint:errcheck // only how it ended matters here
	return how
}

// marksIn returns how the marks on an error say the work ended, outermost first, and the failure if it is
// permanent. It does not use errors.Is and errors.As, which would look into the errors of steps.
func marksIn(err error) (how ended, failure *PermanentError) {
	switch e := err.(type) { //nolint:errorlint // it must see every layer
	case nil:
	case *PermanentError:
		if e != nil { // a nil pointer in an error says nothing
			return endedRejected, e
		}
	case *notDoneError:
		return endedNotDone, nil
	case *stepError:
		if how, failure = marksIn(e.err); how == endedRejected {
			return how, failure
		}
	case *nestedError, *Error: // another operation's end says nothing about this one
	case interface{ Unwrap() error }:
		return marksIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if how, failure = marksIn(inner); how != endedUnknown {
				return how, failure
			}
		}
	}
	return endedUnknown, nil
}
