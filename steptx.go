package everonce

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce/driver"
)

// errTwoStores is for applications that made one store per receiver: these are two stores even on one database.
var errTwoStores = errors.New("the receivers of the operation and the step have different stores (make both with the same one)")

// StepTx executes one step of a guarded operation in a transaction on the database that holds the operation's
// record. The step's writes, its result, and the check that the attempt still holds the operation commit together:
// what did not commit had no effect.
//
// It retries as [Transact] does, and fn must not end the transaction. Errors of fn roll back, and are otherwise as in
// [Step]. [ErrOtherStore]: t is not of the operation's store. [ErrLeaseLost]: another attempt has the operation;
// the transaction was rolled back. Option: WithCodec.
func StepTx[T, Tx any](ctx context.Context, a *Attempt, t *TxReceiver[Tx], name string, fn func(ctx context.Context, tx Tx) (T, error), opts ...CallOption) (T, error) {
	var zero T
	s, err := a.beginStep(ctx, name, fn == nil || t == nil, opts, stepTxOptions, opStepTx)
	if err != nil {
		return zero, err
	}
	if t.store != a.store {
		return zero, s.fail(Invalid, ErrOtherStore, errTwoStores)
	}
	ctx = s.observe(ctx)
	defer s.unwound()
	run := &stepTxRun[T, Tx]{stepRun: s, runs: t.runs(), fn: fn}
	run.set = a.set
	v, err := run.loop(ctx)
	return v, s.finish(s.outcome, err)
}

// stepTxRun is the state of one StepTx. It runs transactions one after the other until one has the answer.
type stepTxRun[T, Tx any] struct {
	*stepRun
	runs[Tx]
	fn    func(context.Context, Tx) (T, error)
	value T    // of the latest run that reached its commit
	late  bool // a commit whose answer was lost may still arrive
}

func (s *stepTxRun[T, Tx]) loop(ctx context.Context) (v T, err error) {
	if s.done() {
		v, s.outcome, err = replayStep[T](s.stepRun)
		return v, s.wrap(err)
	}
	if s.unreadable() {
		return v, s.refuse(errUnreadable, false)
	}
	if s.recorded.State == driver.StepOpen && s.call.policy != Reexecute { // a Step of that name began it outside of transactions
		return v, s.refuse(nil, false)
	}
	var zero T
	for {
		v, err := s.once(ctx)
		again := asAgain(err)
		if again == nil {
			return v, err
		}
		if end := s.next(ctx, s, again); end != nil {
			return zero, end
		}
	}
}

// once first finds out whether a lost commit took effect, if there was one, and then runs the step's transaction.
func (s *stepTxRun[T, Tx]) once(ctx context.Context) (v T, err error) {
	if s.lost != nil {
		switch found, err := s.foundCommitted(); {
		case found:
			return s.committed()
		case errors.Is(err, ErrLeaseLost):
			return v, s.leaseLost()
		case err != nil:
			return v, err
		}
		s.lost = nil // it did not commit, and cannot any more
	}
	v, err = s.run(ctx)
	if s.late && err != nil && asAgain(err) == nil && s.outcome != Rejected && s.outcome != Unknown && s.fenced() {
		return s.committed()
	}
	return v, err
}

// run runs the step's transaction.
func (s *stepTxRun[T, Tx]) run(ctx context.Context) (v T, err error) {
	var zero T
	lent, _, err := s.runs.begin(ctx, driver.BeginRequest{Timeout: s.set.TxTimeout})
	if err != nil {
		switch {
		case s.a.Lost():
			return zero, s.leaseLost()
		case ctx.Err() != nil:
			return zero, s.callerGone(ctx, err)
		case asAgain(err) != nil:
			return zero, err
		}
		return zero, s.fail(StoreFailed, ErrStore, err)
	}
	defer lent.close(ctx)
	if ctx.Err() != nil {
		return zero, s.callerGone(ctx, nil)
	}
	v, err = runIn(ctx, lent, s.a, &place{outer: placeOf(ctx), attempt: s.a, step: s.name, tx: lent.h.Tx()}, s.fn)
	switch {
	case asAgain(err) != nil:
		return zero, err
	case err != nil:
		return zero, undoneStep(s.stepRun, err)
	}
	s.value = v
	saved, elided := encode(s.a.core, s.call, v, nil)
	if s.elide && saved.Kind == driver.ResultValue {
		saved, elided = withoutData(saved), "store"
	}
	if s.ev != nil {
		s.ev.Elided = elided
	}
	req := s.a.stepRequest(driver.StepRecord{Name: s.name, State: driver.StepDone, Attempt: s.a.number, Result: saved})
	sent := time.Now()
	err = lent.commit(ctx, driver.CommitRequest{SaveStep: &req})
	switch {
	case err == nil:
		s.outcome = Executed
		s.a.extend(sent)
		s.a.knownSteps().wrote(req.Step)
		s.a.knownSteps().ended(s.name)
		return v, nil
	case errors.Is(err, ErrLeaseLost): // or our own late commit came first
		if found, err := s.foundCommitted(); err == nil && found {
			return s.committed()
		}
		return zero, s.leaseLost()
	case errors.Is(err, driver.ErrTooLarge) && saved.Kind == driver.ResultValue:
		s.elide = true
		return zero, &errAgain{}
	}
	err = s.commitError(err)
	s.late = s.late || s.lost != nil
	if asAgain(err) != nil {
		return zero, err
	}
	return zero, s.fail(Failed, ErrStore, err)
}

// undoneStep ends a step whose transaction was rolled back: a permanent failure is recorded, any other end leaves
// nothing.
func undoneStep(s *stepRun, err error) error {
	if how, failure := s.a.set.judge(err); how == endedRejected {
		return s.reject(failure)
	}
	s.outcome = Failed
	return s.wrap(err)
}

// fenced keeps a late commit from taking effect, because the work has been given the step's failure, and reports
// whether the commit was faster.
func (s *stepTxRun[T, Tx]) fenced() bool {
	if s.save(driver.StepRecord{State: driver.StepNotDone}, s.a.set.StoreTimeout) != nil {
		return false // the attempt's end fences it off as well
	}
	found, err := s.foundCommitted()
	return err == nil && found
}

// committed returns the result of a step that was found committed: the saved value, or the latest run's if it was
// not kept.
func (s *stepTxRun[T, Tx]) committed() (T, error) {
	s.a.knownSteps().wrote(s.recorded)
	s.a.knownSteps().ended(s.name)
	s.outcome = Executed
	if s.recorded.Result.Kind != driver.ResultValue {
		return s.value, nil
	}
	v, _, err := replayStep[T](s.stepRun)
	return v, s.wrap(err)
}

// foundCommitted finds out whether a commit whose answer was lost took effect. It locks the parent's token, so the
// old transaction must have ended, and reads the step.
func (s *stepTxRun[T, Tx]) foundCommitted() (bool, error) {
	ctx, cancel := s.a.detached(s.a.set.StoreTimeout)
	defer cancel()
	tx, _, err := s.runs.begin(ctx, driver.BeginRequest{Timeout: s.set.StoreTimeout})
	if err != nil {
		return false, err
	}
	defer tx.rollback(ctx) //nolint:errcheck // it only read
	if _, err := tx.h.Renew(ctx, driver.RenewRequest{ID: s.a.id, Token: s.a.token, Nonce: s.a.nonce, Lease: s.a.call.lease, Lifetime: s.a.call.lifetime}); err != nil {
		return false, s.beginError(err)
	}
	got, err := tx.h.Get(ctx, driver.GetRequest{ID: s.a.id})
	if err != nil {
		return false, s.beginError(err)
	}
	step, ok := got.Record.Step(s.name)
	if !ok || step.State != driver.StepDone || step.Attempt != s.a.number {
		return false, nil
	}
	s.recorded = step
	return true, nil
}
