package everonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// errTwoStores is for who has made a store for each receiver: on one database they are two all the same.
var errTwoStores = errors.New("the receivers of the operation and the step have different stores (make both with the same one)")

// StepTx executes one step of a guarded operation in a transaction on the database that holds the operation's record.
// The step's writes, its result, and the check that the attempt still holds the operation commit together: what did not
// commit did not happen.
//
// It retries as [Transact] does, and fn must not end the transaction. Errors of fn roll back, and are otherwise as in
// [Step]. [driver.ErrOtherStore]: t is not of the operation's store. [ErrLeaseLost]: another attempt has the operation;
// the transaction was rolled back. Option: WithCodec.
func StepTx[T, Tx any](ctx context.Context, a *Attempt, t *TxReceiver[Tx], name string, fn func(ctx context.Context, tx Tx) (T, error), opts ...CallOption) (T, error) {
	var zero T
	s, err := a.beginStep(ctx, name, fn == nil || t == nil, opts, stepTxOptions, opStepTx)
	if err != nil {
		return zero, err
	}
	if t.store != a.store {
		return zero, s.fail(Invalid, driver.ErrOtherStore, errTwoStores)
	}
	ctx = s.observe(ctx)
	defer s.unwound()
	v, err := stepTx(ctx, s, t, fn)
	return v, s.finish(s.outcome, err)
}

func stepTx[T, Tx any](ctx context.Context, s *stepRun, t *TxReceiver[Tx], fn func(context.Context, Tx) (T, error)) (v T, err error) {
	if s.done() {
		v, s.outcome, err = replayStep[T](s)
		return v, s.wrap(err)
	}
	if s.unreadable() {
		return v, s.refuse(errUnreadable, false)
	}
	if s.recorded.State == driver.StepOpen && s.call.policy != Reexecute { // a Step of that name began it outside of transactions
		return v, s.refuse(nil, false)
	}
	var zero T
	var lost error // the commit's error, where its answer was lost
	late := false  // such a commit may still arrive
	for try := 1; ; try++ {
		var done bool
		if lost != nil {
			if done, err = foundCommitted(s, t); done {
				return committedStep(s, v)
			}
			switch {
			case err == nil:
				lost = nil // it had not committed, and cannot any more
			case errors.Is(err, ErrLeaseLost):
				return zero, s.leaseLost()
			}
		}
		if lost == nil {
			if v, done, err = stepTxOnce(ctx, s, t, fn); done {
				if late && err != nil && s.outcome != Rejected && s.outcome != Unknown && fenced(s, t) {
					return committedStep(s, v)
				}
				return v, err
			}
			if errors.Is(err, ErrLeaseLost) { // or a commit of ours was late, and came first
				if found, err := foundCommitted(s, t); err == nil && found {
					return committedStep(s, v)
				}
				return zero, s.leaseLost()
			}
		}
		if lost == nil && errors.Is(err, driver.ErrTooLarge) { // once more, elided: no failure that is to be waited for
			continue
		}
		class := t.txs.ClassifyTx(err)
		if lost == nil && class == driver.TxErrorCommitLost {
			lost, late = err, true
		}
		waitCtx := ctx
		if lost != nil {
			waitCtx = context.WithoutCancel(ctx)
		}
		switch {
		case try > s.a.set.TxRetries && lost != nil: // the next attempt's claim waits for that commit, and knows
			s.outcome = Unknown
			return zero, s.fail(Unknown, ErrStore, errors.Join(lost, err))
		case try > s.a.set.TxRetries:
			s.outcome = Failed
			return zero, s.fail(Failed, ErrStore, err)
		case retry.Pause(waitCtx, retry.Backoff(try)) != nil:
			return zero, s.callerGone(ctx, err)
		}
		if s.ev != nil {
			s.ev.Retries++
		}
	}
}

// stepTxOnce runs the step's transaction once. It is done, or may be run again after err.
func stepTxOnce[T, Tx any](ctx context.Context, s *stepRun, t *TxReceiver[Tx], fn func(context.Context, Tx) (T, error)) (v T, done bool, err error) {
	var zero T
	lent, _, again, err := begin(ctx, t.txs, s.a.set, driver.BeginRequest{Timeout: s.a.set.TxTimeout})
	if err != nil {
		switch {
		case s.a.Lost():
			return zero, true, s.leaseLost()
		case ctx.Err() != nil:
			return zero, true, s.callerGone(ctx, err)
		case again:
			return zero, false, err
		}
		s.outcome = StoreFailed
		return zero, true, s.fail(StoreFailed, ErrStore, err)
	}
	defer lent.close(ctx)
	if ctx.Err() != nil {
		return zero, true, s.callerGone(ctx, nil)
	}
	v, err = runIn(ctx, lent, s.a, &place{outer: placeOf(ctx), attempt: s.a, tx: lent.h.Tx()}, fn)
	switch {
	case err == nil:
	case readMarks(err) == endedUnknown && t.txs.ClassifyTx(err) == driver.TxErrorRetry:
		return zero, false, err
	default:
		return zero, true, undoneStep(s, err)
	}
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
		return v, true, nil
	case errors.Is(err, ErrLeaseLost):
		return v, false, err
	case errors.Is(err, driver.ErrTooLarge) && saved.Kind == driver.ResultValue:
		s.elide = true
		return zero, false, err
	}
	switch t.txs.ClassifyTx(err) {
	case driver.TxErrorRetry, driver.TxErrorCommitLost:
		return v, false, err
	}
	s.outcome = Failed
	return zero, true, s.fail(Failed, ErrStore, err)
}

// undoneStep ends a step whose transaction was rolled back: a permanent failure is recorded, all else has
// left nothing.
func undoneStep(s *stepRun, err error) error {
	if how, failure := s.a.set.judge(err); how == endedRejected {
		return s.reject(failure)
	}
	s.outcome = Failed
	return s.wrap(err)
}

// fenced keeps a commit that is late from taking effect, now that the work is told that the step failed, and
// reports whether that commit was faster.
func fenced[Tx any](s *stepRun, t *TxReceiver[Tx]) bool {
	if s.save(driver.StepRecord{State: driver.StepNotDone}, s.a.set.StoreTimeout) != nil {
		return false // the attempt's end fences it off as well
	}
	found, err := foundCommitted(s, t)
	return err == nil && found
}

// committedStep is the end of a step that was found committed: what was saved is the answer. v is the
// value of the latest run, for a result that was not kept.
func committedStep[T any](s *stepRun, v T) (T, error) {
	s.a.knownSteps().wrote(s.recorded)
	s.a.knownSteps().ended(s.name)
	s.outcome = Executed
	if s.recorded.Result.Kind != driver.ResultValue {
		return v, nil
	}
	v, _, err := replayStep[T](s)
	return v, s.wrap(err)
}

// foundCommitted finds out what became of a commit whose answer was lost: it locks the parent's token,
// for which the old transaction must have ended, and reads the step.
func foundCommitted[Tx any](s *stepRun, t *TxReceiver[Tx]) (bool, error) {
	ctx, cancel := s.a.detached(s.a.set.StoreTimeout)
	defer cancel()
	tx, _, _, err := begin(ctx, t.txs, s.a.set, driver.BeginRequest{Timeout: s.a.set.StoreTimeout})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer tx.rollback(ctx) //nolint:errcheck // it has only read
	if _, err := tx.h.Renew(ctx, driver.RenewRequest{ID: s.a.id, Token: s.a.token, Nonce: s.a.nonce, Lease: s.a.call.lease, Lifetime: s.a.call.lifetime}); err != nil {
		return false, err
	}
	got, err := tx.h.Get(ctx, driver.GetRequest{ID: s.a.id})
	if err != nil {
		return false, err
	}
	step, ok := got.Record.Step(s.name)
	if !ok || step.State != driver.StepDone || step.Attempt != s.a.number {
		return false, nil
	}
	s.recorded = step
	return true, nil
}
