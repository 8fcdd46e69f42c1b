package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/waiting"
)

// Transact executes an operation once, in a transaction that everonce begins and commits: the work's writes through
// tx and their record commit together or not at all (transactional mode). A transaction that did not commit had no
// effect.
//
// After a deadlock, a serialization failure or a busy database the transaction is rerun with the work, up to
// Options.TxRetries times. So the work may run more than once, but takes effect once; it must have no effects
// outside tx. It returns the errors of [Do], except:
//
//   - Any error of the work that is not permanent (Failed): rolled back, and no record remains.
//   - A permanent failure (Rejected): rolled back, and saved by a second transaction.
//   - [ErrTxTooLong]: the transaction exceeded Options.TxTimeout or its store's limit.
//   - [ErrOutcomeUnknown]: the commit's answer was lost, and the store is unreachable. Call again to find out.
//
// The work must not end the transaction, not even by a statement's text: its effects may then commit without the
// record. Only the work's context ends with ctx, not the transaction.
//
// Options: a Fingerprint, WithWait, WithLifetime, WithSummary, WithCodec, Optimistic, Unobserved.
func Transact[T, Tx any](ctx context.Context, t *TxReceiver[Tx], key Key, work func(ctx context.Context, tx Tx) (T, error), opts ...CallOption) (res Result[T], err error) {
	if t == nil || work == nil {
		return invalid[T](fmt.Errorf("%w: the receiver or the work is nil", ErrInvalidArgument))
	}
	op, err := t.prepare(ctx, key, RecordID{}, opts, transactOptions)
	if err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	summarize, err := summaryOf[T](op.call)
	if err != nil {
		return invalid[T](err)
	}
	if op.observed() {
		o := op.observe(ctx, opTransact, "")
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
	run := &transaction[T, Tx]{operation: op, runs: t.runs(), work: work, summarize: summarize, optimistic: op.call.optimistic}
	return run.loop(ctx)
}

// transaction is the state of one Transact. It runs transactions one after the other until one has the answer.
type transaction[T, Tx any] struct {
	operation
	runs[Tx]
	work       func(context.Context, Tx) (T, error)
	summarize  func(T) []byte
	waiter     waiting.Waiter
	nonce      driver.Nonce
	optimistic bool

	failure *PermanentError // the failure to save without running the work again
	elide   bool            // the store has refused the result by its size
	value   T               // of the latest run that reached its commit
	held    bool            // a transaction of this call had the key, or may have
	ran     int             // the number of the attempt whose work was called; 0 if none was
}

func (r *transaction[T, Tx]) loop(ctx context.Context) (Result[T], error) {
	r.nonce = driver.NewNonce()
	r.waiter = r.operation.waiter(r.nonce)
	defer r.waiter.Leave()
	defer func() { // after a panic of the work too
		if r.held {
			r.hub.Wake(r.id)
		}
	}()
	for {
		res, err := r.once(ctx)
		again := asAgain(err)
		if again == nil {
			return res, err
		}
		if end := r.next(ctx, &r.operation, again); end != nil {
			return r.notBegun(end)
		}
	}
}

// once runs one transaction.
func (r *transaction[T, Tx]) once(ctx context.Context) (res Result[T], err error) {
	claimed := r.claimAs(ctx, r.nonce)
	req := driver.BeginRequest{Timeout: r.set.TxTimeout, Claim: &claimed}
	late := r.optimistic && r.lost == nil
	if late {
		if found, res, err := r.look(ctx); found || err != nil {
			return res, err
		}
		if late = r.optimistic; late {
			req.Claim = nil
		}
	}
	caller := r.outliving(ctx)
	tx, claim, err := r.begin(caller, req)
	if err != nil {
		return r.notBegun(r.beginFailed(caller, err))
	}
	if !late && claim.Decision != driver.DecideClaimed {
		return r.notClaimed(ctx, &claim)
	}
	r.waits = false
	r.waiter.Share(&claim)
	r.held = true
	defer func() {
		if tx.close(ctx) && r.ev != nil { // a panic or Goexit of the work, which continues
			r.ev.Outcome, r.ev.Err = Failed, errUnwound
		}
	}()

	number := max(claim.Record.Attempt, 1)
	if r.ev != nil {
		r.ev.Attempt = number
	}
	r.lost = nil // the claim was granted, so the lost commit did not happen, and cannot any more
	var saved driver.SavedResult
	if r.failure != nil {
		saved = r.failure.save()
	} else {
		if ctx.Err() != nil {
			return r.notBegun(r.callerGone(ctx, nil))
		}
		r.ran = number
		a := &Attempt{operation: r.operation, token: claim.Record.Token, nonce: r.nonce, number: number}
		r.value, err = runIn(ctx, tx, a, a.inTx(tx.h.Tx()), r.work)
		if err != nil {
			return r.workFailed(err)
		}
		var elided string
		saved, elided = encode(r.core, r.call, r.value, r.summarize)
		if r.elide && saved.Kind == driver.ResultValue {
			saved, elided = withoutData(saved), "store"
		}
		if r.ev != nil {
			r.ev.Elided = elided
		}
	}

	commit := driver.CommitRequest{Complete: &driver.CompleteRequest{ID: r.id, Token: claim.Record.Token, Nonce: r.nonce, Result: saved, Lifetime: r.call.lifetime}}
	if late {
		commit.Record = &claimed
	}
	if err := tx.commit(ctx, commit); err != nil {
		return r.commitFailed(err)
	}
	return r.committed(number)
}

// notBegun ends the call if no transaction could be begun, at the first run or a later one.
func (r *transaction[T, Tx]) notBegun(err error) (Result[T], error) {
	res, err := errorResult[T](err)
	res.Attempt = r.ran
	return res, err
}

// beginFailed returns the error of a transaction that could not be begun: an errAgain if another run may help, else
// the call's error.
func (r *transaction[T, Tx]) beginFailed(caller context.Context, err error) error {
	switch {
	case asAgain(err) != nil:
		return err
	case caller.Err() == nil && !isFinal(err):
		r.waiter.Failed(caller)
	}
	return r.storeFailed(caller, err)
}

// look reads the record before an optimistic transaction. If it is found, it is the answer.
func (r *transaction[T, Tx]) look(ctx context.Context) (found bool, res Result[T], err error) {
	got, err := r.get(ctx)
	switch {
	case err != nil:
		if !isFinal(err) {
			r.waiter.Failed(ctx)
		}
		res, err = r.notBegun(r.storeFailed(ctx, err))
		return false, res, err
	case !got.Found:
		return false, res, nil
	}
	claim := driver.ClaimResult{Record: got.Record, Now: got.Now, Decision: driver.Decide(&got.Record, r.claimAs(ctx, r.nonce), got.Now)}
	if claim.Decision == driver.DecideClaimed {
		r.optimistic = false // there is a released record: claim it
		return false, res, nil
	}
	res, err = r.notClaimed(ctx, &claim)
	return true, res, err
}

// notClaimed ends a transaction that did not get the claim.
func (r *transaction[T, Tx]) notClaimed(ctx context.Context, claim *driver.ClaimResult) (Result[T], error) {
	switch {
	case r.lost == nil:
	case claim.Decision == driver.DecideInProgress: // the old transaction may still be open
		return Result[T]{}, &errAgain{r.lost}
	case hadCommitted(claim, r.nonce):
		return r.committed(claim.Record.Attempt)
	}
	if claim.Decision == driver.DecideNewer {
		return Result[T]{Outcome: StoreFailed}, r.fail(StoreFailed, ErrStore, driver.ErrNewerRecord)
	}
	if claim.Decision == driver.DecideInProgress && r.call.wait > 0 {
		again, err := r.wait(ctx, &r.waiter, claim)
		if err != nil {
			return r.notBegun(r.callerGone(ctx, nil))
		}
		if again {
			return Result[T]{}, &errAgain{}
		}
	}
	r.waits = false
	r.waiter.Share(claim)
	return resultOf[T](&r.operation, claim)
}

// workFailed ends a transaction that was rolled back because its work failed.
func (r *transaction[T, Tx]) workFailed(err error) (Result[T], error) {
	if asAgain(err) != nil {
		return Result[T]{}, err
	}
	if how, failure := r.set.judge(err); how == endedRejected {
		r.failure, r.final = failure, true
		r.optimistic = false
		return Result[T]{}, &errAgain{} // a separate transaction saves it
	}
	if errors.Is(err, ErrTxTooLong) {
		return r.rolledBack(ErrTxTooLong, err)
	}
	return Result[T]{Outcome: Failed, Attempt: r.ran}, r.asNested(err)
}

// rolledBack ends a transaction that was rolled back for another reason than the work's error.
func (r *transaction[T, Tx]) rolledBack(sentinel, cause error) (Result[T], error) {
	return Result[T]{Outcome: Failed, Attempt: r.ran}, r.fail(Failed, sentinel, cause)
}

// commitFailed ends a transaction whose commit failed.
func (r *transaction[T, Tx]) commitFailed(err error) (Result[T], error) {
	switch {
	case errors.Is(err, ErrConflict) && r.optimistic: // another transaction was first: claim, and return its answer
		r.optimistic = false
		return Result[T]{}, &errAgain{}
	case errors.Is(err, ErrConflict):
		return Result[T]{}, &errAgain{err}
	case errors.Is(err, driver.ErrTooLarge) && r.failure != nil && r.failure.Detail != nil:
		r.failure = r.failure.withoutDetail()
		return Result[T]{}, &errAgain{}
	case errors.Is(err, driver.ErrTooLarge) && r.failure == nil && !r.elide:
		r.elide = true
		return Result[T]{}, &errAgain{}
	case errors.Is(err, ErrTxTooLong):
		return r.rolledBack(ErrTxTooLong, nil)
	}
	if again := asAgain(r.commitError(err)); again != nil {
		return Result[T]{}, again
	}
	return r.rolledBack(ErrStore, err)
}

func (r *transaction[T, Tx]) committed(number int) (Result[T], error) {
	if r.failure != nil {
		return Result[T]{Outcome: Rejected, Attempt: number}, r.failure
	}
	return Result[T]{Value: r.value, Outcome: Executed, Attempt: number}, nil
}
