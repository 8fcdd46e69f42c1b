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

// complete saves a result until it is stored or refused, past the lease too, within the completion
// limit. A value that the store refuses by its size is elided. It returns nil, ErrLeaseLost, or what the
// store last said.
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

// release ends the attempt without a result. A release that fails leaves the claim to lapse, which is
// another state than released: so it is tried as long as a completion. To abandon is what lapsing does
// anyway: that is tried shortly. It returns ErrLeaseLost if another has the record; after a try whose
// answer was lost that is not told, for it may have come after the release.
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

// toSettle returns the step if somebody has to settle it before the next attempt: none of those that will be asked about again.
func (a *Attempt) toSettle(step string) string {
	if a.takesOver() && a.seenSteps().asksAgain(step) {
		return ""
	}
	return step
}

// persist repeats a write of the attempt until it is done, refused for good, or the limit has passed.
// It does not end with the caller's context. ev, if there is one, counts the repetitions: the event of the
// operation, or that of a step, for steps may run concurrently.
func (a *Attempt) persist(ev *Observation, limit time.Duration, write func(context.Context) error) error {
	var err error
	if a.prompt { // a store in memory needs no context of its own
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

// isRefusal reports whether a write's error is the store's last word.
func isRefusal(err error) bool {
	return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrAttemptEnded) || errors.Is(err, driver.ErrTooLarge) ||
		errors.Is(err, driver.ErrNewerRecord) || errors.Is(err, driver.ErrCorruptRecord)
}

// NotDone marks an error as proof that nothing happened: the attempt is released, and the key may be tried again.
// errors.Is and errors.As see through it. NotDone(nil) is an error too. In joined errors the first mark counts. The
// mark ends at the border of a step, or of an operation inside the work.
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

// nestedError is the border of an operation inside another one's work: that nothing of the inner one
// took hold says nothing of the outer.
type nestedError struct{ err error }

func (e *nestedError) Error() string { return e.err.Error() }
func (e *nestedError) Unwrap() error { return e.err }

// bordered returns the work's own error as the call returns it.
func (op *operation) bordered(err error) error {
	if op.place == nil || err == nil {
		return err
	}
	return &nestedError{err}
}

// crossedBorder reports whether an error came out of a step or of another operation: what it says, it says
// of that.
func crossedBorder(err error) bool {
	var inStep *stepError
	var nested *nestedError
	var e *Error
	return errors.As(err, &inStep) || errors.As(err, &nested) || errors.As(err, &e)
}

// readMarks tells what the marks on an error say.
func readMarks(err error) ended {
	how, _ := marksIn(err) //nolint:errcheck // how it ended is what is asked here
	return how
}

// marksIn tells what the marks on an error say, outermost first, and the failure of one that is refused for good: errors.Is and
// errors.As would look through the border of a step.
func marksIn(err error) (how ended, failure *PermanentError) {
	switch e := err.(type) { //nolint:errorlint // the walk is by hand: it must see every layer
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
	case *nestedError, *Error: // another operation's: what became of that one says nothing of this
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
