package everonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// Step executes one effect of an operation once, over all its attempts: a step that an earlier attempt finished returns
// its saved result. Steps may come in any order and run concurrently.
//
// The store records the step as begun before fn is called, and as ended after it. If an earlier attempt began it and
// did not end it, it is unknown, and its policy decides (WithPolicy; by default the operation's). If that refuses, Step
// returns [ErrOutcomeUnknown], and the operation is abandoned until the step is settled.
//
// Errors of fn are treated like errors of [Do]'s work, and come back wrapped; [NotDone] is about the step only.
// Other errors:
//
//   - [ErrNotRecorded], with the value: the effect happened, but was not recorded. An error of fn that was not recorded
//     comes with [ErrStore].
//   - [ErrInvalidArgument]: this attempt has used the name before.
//   - [ErrLeaseLost], [ErrAttemptEnded]: stop.
//   - The context's cause: ctx had ended, and nothing was begun. See [Attempt.Detached].
//
// Options: WithPolicy, WithReconcile, WithCodec. Inside an operation under Reconcile, a step needs its own
// WithReconcile, or another policy.
func Step[T any](ctx context.Context, a *Attempt, name string, fn func(context.Context) (T, error), opts ...CallOption) (T, error) {
	s, err := a.beginStep(ctx, name, fn == nil, opts, stepOptions, opStep)
	var zero T
	if err != nil {
		return zero, err
	}
	ask, err := reconcilerOf[T](s.call)
	if err != nil {
		return zero, s.finish(Invalid, &Error{Outcome: Invalid, Sentinel: err, Step: name})
	}
	ctx = s.observe(ctx)
	defer s.unwound()
	v, err := step(ctx, s, fn, ask)
	return v, s.finish(s.outcome, err)
}

// step runs one step to its end.
func step[T any](ctx context.Context, s *stepRun, fn func(context.Context) (T, error), ask reconciler[T]) (v T, err error) {
	if s.done() {
		v, s.outcome, err = replayStep[T](s)
		return v, s.wrap(err)
	}
	if s.a.Lost() {
		return v, s.leaseLost()
	}
	if s.unreadable() {
		return v, s.refuse(errUnreadable, false)
	}
	if s.recorded.State == driver.StepOpen {
		switch s.call.policy {
		case Refuse:
			return v, s.refuse(nil, false)
		case Reconcile:
			verdict, err := ask(ctx, s.abandoned())
			switch {
			case err != nil:
				return v, s.refuse(err, true)
			case verdict.kind == verdictUnknown:
				return v, s.refuse(errStillUnknown, true)
			case verdict.kind == verdictHappened:
				v, err := endStep(s, verdict.value, nil)
				if s.ev != nil {
					s.ev.Reconciled = s.outcome == Executed
				}
				return v, err
			}
		}
	}
	if err := s.begin(ctx); err != nil {
		return v, err
	}
	v, err = fn(&placedContext{Context: ctx, place: &place{outer: placeOf(ctx), attempt: s.a, step: s.name}})
	return endStep(s, v, err)
}

// begin records that fn is about to be called. If it fails, fn is not called; nor if the answer came after the end
// of the lease or of ctx.
func (s *stepRun) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return s.callerGone(ctx, nil)
	}
	err := s.save(driver.StepRecord{State: driver.StepOpen}, s.a.set.StoreTimeout)
	switch {
	case errors.Is(err, ErrLeaseLost):
		return s.leaseLost()
	case err == nil && !s.a.lapsed() && ctx.Err() == nil:
		s.a.knownSteps().open(s.name, s.call.policy)
		return nil
	}
	// It was written, or may have been, and fn is not called: try once to record that. A step that an earlier
	// attempt left open stays open.
	if s.recorded.State != driver.StepOpen {
		_ = s.save(driver.StepRecord{State: driver.StepNotDone}, s.a.set.StoreTimeout) //nolint:errcheck // the error below says why fn is not called
	}
	switch {
	case err != nil:
		return s.fail(StoreFailed, ErrStore, err)
	case s.a.lapsed():
		return s.leaseLost()
	}
	return s.callerGone(ctx, nil)
}

// callerGone returns the error of a step that was not begun because its context had ended.
func (s *stepRun) callerGone(ctx context.Context, said error) *Error {
	if s.a.Lost() { // which is why the context ended
		return s.leaseLost()
	}
	s.outcome = Failed
	e := s.a.callerGone(ctx, said)
	e.Step = s.name
	return e
}

// done reports whether an earlier attempt has finished the step: its result is the answer.
func (s *stepRun) done() bool { return s.recorded.State == driver.StepDone && s.recorded.Readable() }

var errUnreadable = fmt.Errorf("%w: the outcome of the step cannot be read", driver.ErrCorruptRecord)

// unreadable reports whether the step's record cannot be read. Then a person must settle it, whatever its policy.
func (s *stepRun) unreadable() bool { return s.recorded.Name != "" && !s.recorded.Readable() }

// replayStep returns the saved result of a finished step.
func replayStep[T any](s *stepRun) (T, Outcome, error) {
	op := s.a.operation
	op.call = s.call
	return replay[T](&op, &s.recorded.Result)
}

// endStep records how a step ended.
func endStep[T any](s *stepRun, v T, err error) (T, error) {
	var zero T
	switch how, failure := s.a.set.judge(err); how {
	case endedDone:
		saved, elided := encode(s.a.core, s.call, v, nil)
		if s.ev != nil {
			s.ev.Elided = elided
		}
		s.outcome = Executed
		return v, s.end(driver.StepRecord{State: driver.StepDone, Result: saved})
	case endedRejected:
		return zero, s.reject(failure)
	case endedNotDone:
		s.outcome = Failed
		if saveErr := s.end(driver.StepRecord{State: driver.StepNotDone}); saveErr != nil {
			return zero, errors.Join(saveErr, s.wrap(err))
		}
	default: // the step stays open for the next attempt
		s.outcome = Unknown
		if s.call.policy == Reexecute {
			s.a.knownSteps().ended(s.name)
			s.outcome = Failed
		}
	}
	return zero, s.wrap(err)
}

// reject records a permanent failure of a step.
func (s *stepRun) reject(failure *PermanentError) error {
	failure, err := failure.savedBy(func(saved driver.SavedResult) error {
		s.outcome = Rejected
		return s.end(driver.StepRecord{State: driver.StepDone, Result: saved})
	})
	if err != nil {
		return errors.Join(err, failure)
	}
	return s.wrap(failure)
}

// stepRun is the state of one step in one attempt.
type stepRun struct {
	a        *Attempt
	call     *call
	name     string
	recorded driver.StepRecord
	outcome  Outcome
	ev       *Observation
	kind     string
	elide    bool // the store has refused the result by its size
	observed observation
	finished bool
}

// beginStep checks a step's call and reserves its name.
func (a *Attempt) beginStep(ctx context.Context, name string, nilFunc bool, opts []CallOption, allowed optionSet, kind string) (*stepRun, error) {
	if a == nil || nilFunc {
		return nil, &Error{Outcome: Invalid, Sentinel: fmt.Errorf("%w: the attempt or the step's function is nil", ErrInvalidArgument)}
	}
	// The codec is the receiver's, even if the operation has another one: that may be an adapter's, which can
	// encode only the adapter's results.
	s := &stepRun{a: a, name: name, kind: kind, call: &call{policy: a.call.policy, codec: a.set.Codec, codecName: a.set.codecName}}
	if _, err := s.call.apply(opts, allowed); err != nil {
		return nil, s.fail(Invalid, err, nil)
	}
	if err := driver.CheckName(ErrInvalidArgument, "step's name", name, driver.MaxStepNameLen); err != nil {
		return nil, &Error{Outcome: Invalid, Sentinel: err}
	}
	if a.ctx.place.tx != nil || inTransactionOn(ctx, a.store) { // an attempt of Transact or DoTx has no steps, in any context
		return nil, s.fail(Invalid, ErrInTransaction, nil)
	}
	var err error
	s.recorded, err = a.knownSteps().use(name)
	if err != nil {
		return nil, s.fail(Invalid, err, nil)
	}
	return s, nil
}

func (s *stepRun) fail(o Outcome, sentinel, cause error) *Error {
	s.outcome = o
	e := s.a.fail(o, sentinel, cause)
	e.Step = s.name
	return e
}

// commitUnknown returns the error of a step whose commit may still arrive: the next attempt's claim waits for it,
// and finds out.
func (s *stepRun) commitUnknown(lost, cause error) *Error {
	return s.fail(Unknown, ErrStore, errors.Join(lost, cause))
}

func (s *stepRun) repeated() {
	if s.ev != nil {
		s.ev.Retries++
	}
}

// leaseLost returns the error of a step whose attempt lost its record.
func (s *stepRun) leaseLost() *Error {
	return s.fail(LeaseLost, ErrLeaseLost, nil)
}

// refuse makes the parent abandoned because of this step: until it is settled, or, if again is set, until the next
// attempt asks about it again.
func (s *stepRun) refuse(cause error, again bool) error {
	s.a.knownSteps().refuse(s.name, again)
	return s.fail(Unknown, ErrOutcomeUnknown, cause)
}

// abandoned describes the attempt that left the step open, for a reconciler. It need not be the latest.
func (s *stepRun) abandoned() Abandoned {
	left := s.a.abandoned(s.name)
	if left.Attempt != s.recorded.Attempt {
		left.Attempt, left.Owner, left.LastError = s.recorded.Attempt, "", ""
	}
	left.Since = s.recorded.BeganAt
	return left
}

// end saves the end of the step, retrying as long as for a completion.
func (s *stepRun) end(rec driver.StepRecord) error {
	err := s.save(rec, s.a.set.CompletionTimeout)
	if errors.Is(err, driver.ErrTooLarge) && rec.Result.Kind == driver.ResultValue {
		rec.Result = withoutData(rec.Result)
		if s.ev != nil {
			s.ev.Elided = "store"
		}
		err = s.save(rec, s.a.set.CompletionTimeout)
	}
	switch {
	case err == nil:
		s.a.knownSteps().ended(s.name)
		return nil
	case errors.Is(err, ErrLeaseLost):
		return s.leaseLost()
	}
	if rec.State == driver.StepDone && rec.Result.Kind != driver.ResultFailure {
		return s.fail(NotRecorded, ErrNotRecorded, ofStore(err))
	}
	return s.fail(NotRecorded, ErrStore, err) // fn's error is joined to it
}

// save writes the step under the parent's token, which also renews the lease.
func (s *stepRun) save(rec driver.StepRecord, limit time.Duration) error {
	rec.Name, rec.Attempt = s.name, s.a.number
	req := s.a.stepRequest(rec)
	var sent time.Time
	err := s.a.persist(s.ev, limit, func(ctx context.Context) error {
		sent = time.Now()
		_, err := s.a.store.SaveStep(ctx, req)
		return err
	})
	if err == nil {
		s.a.extend(sent)
		s.a.knownSteps().wrote(rec)
	}
	return err
}

func (a *Attempt) stepRequest(rec driver.StepRecord) driver.SaveStepRequest {
	return driver.SaveStepRequest{ID: a.id, Token: a.token, Nonce: a.nonce, Step: rec, Lease: a.call.lease, Lifetime: a.call.lifetime}
}

// wrap names the step in an error of its function.
func (s *stepRun) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &stepError{name: s.name, err: err}
}

// observe starts the observation of the step, and returns the context of its function.
func (s *stepRun) observe(ctx context.Context) context.Context {
	if s.a.set.Observer == nil {
		return ctx
	}
	s.observed = s.a.newObservation(ctx, s.kind, s.name)
	s.ev = s.observed.ev
	s.ev.Attempt = s.a.number
	return s.observed.ctx
}

func (s *stepRun) finish(o Outcome, err error) error {
	s.finished = true
	if s.ev != nil {
		s.observed.end(o, err)
	}
	return err
}

// unwound ends the observation of a step whose function panicked or exited its goroutine. The step stays open, or
// its transaction has been rolled back.
func (s *stepRun) unwound() {
	if s.finished {
		return
	}
	o := Unknown
	if s.kind == opStepTx || s.call.policy == Reexecute {
		o = Failed
	}
	_ = s.finish(o, errUnwound) //nolint:errcheck // it returns its argument; the panic continues
}
