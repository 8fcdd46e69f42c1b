package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/doomed"
	"github.com/everonce/everonce/internal/retry"
)

// runs executes the transactions of one call, one after the other until one has the answer. Transact, a group of a
// batch, StepTx and InTx are loops over it: run once, and as long as the error is an errAgain, call next.
type runs[Tx any] struct {
	txs     driver.TxStore[Tx]
	set     *settings
	retries int
	lost    error // of a commit whose answer was lost, until it is known whether it took effect
	final   bool  // the work is done, and its result must be saved
}

// errAgain asks for another run because of its cause. Without a cause the run follows at once: it is a step towards
// the answer.
type errAgain struct{ cause error }

func (e *errAgain) Error() string { return fmt.Sprintf("again: %v", e.cause) }
func (e *errAgain) Unwrap() error { return e.cause }

// asAgain returns err if it asks for another run, and nil otherwise.
func asAgain(err error) *errAgain {
	again, _ := err.(*errAgain) //nolint:errorlint // never wrapped
	return again
}

// outliving returns the context for the rest of the call. It is detached from the caller's while it is unknown
// whether a commit took effect, and once the work is done.
func (r *runs[Tx]) outliving(ctx context.Context) context.Context {
	if r.lost != nil || r.final {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// begin begins a transaction to lend to the work. If its claim was not granted, it returns no transaction, and the
// decision says why. The error is an errAgain if the database was busy, but not if the begin took all of its time:
// then the store is failing, whatever its error says.
func (r *runs[Tx]) begin(ctx context.Context, req driver.BeginRequest) (*lent[Tx], driver.ClaimResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.set.StoreTimeout)
	defer cancel()
	h, claim, err := r.txs.Begin(ctx, req)
	switch {
	case err == nil:
		return &lent[Tx]{h: h, runs: r, open: true, end: func() {}}, claim, nil
	case ctx.Err() != nil && r.lost == nil:
		return nil, claim, err
	}
	return nil, claim, r.beginError(err)
}

// beginError returns the error of a begin, or of a claim after it. It is an errAgain if the database was busy, or
// if a lost commit must be looked up.
func (r *runs[Tx]) beginError(err error) error {
	if r.lost != nil || !isFinal(err) && r.txs.ClassifyTx(err) == driver.TxErrorRetry {
		return &errAgain{err}
	}
	return err
}

// workError returns the error of the work. It is an errAgain if it is the database's, and the work has not marked
// it.
func (r *runs[Tx]) workError(err error) error {
	if readMarks(err) == endedUnknown && r.txs.ClassifyTx(err) == driver.TxErrorRetry {
		return &errAgain{err}
	}
	return err
}

// commitError returns the error of a commit. It is an errAgain if nothing was committed, or if the answer was lost.
func (r *runs[Tx]) commitError(err error) error {
	switch r.txs.ClassifyTx(err) {
	case driver.TxErrorCommitLost:
		r.lost = err
		return &errAgain{err}
	case driver.TxErrorRetry:
		return &errAgain{err}
	}
	return err
}

// runner is the call that the transactions are run for.
type runner interface {
	fail(o Outcome, sentinel, cause error) *Error
	commitUnknown(lost, cause error) *Error
	callerGone(ctx context.Context, said error) *Error
	repeated()
}

// next pauses before another run. If the call must end instead, it returns the call's error.
func (r *runs[Tx]) next(ctx context.Context, of runner, again *errAgain) *Error {
	if again.cause == nil {
		return nil
	}
	r.retries++
	switch {
	case r.retries > r.set.TxRetries && r.lost != nil:
		return of.commitUnknown(r.lost, again.cause)
	case r.retries > r.set.TxRetries:
		return of.fail(Failed, ErrStore, again.cause)
	case retry.Pause(r.outliving(ctx), retry.Backoff(r.retries)) != nil:
		return of.callerGone(ctx, again.cause)
	}
	of.repeated()
	return nil
}

// commitUnknown returns the error of a call that could not find out whether its commit took effect.
func (op *operation) commitUnknown(lost, cause error) *Error {
	e := op.fail(Unknown, ErrOutcomeUnknown, ofStore(errors.Join(lost, cause)))
	e.RetryAfter = op.set.RetryAfter
	return e
}

// hadCommitted reports whether a claim found the record of an earlier run.
func hadCommitted(claim *driver.ClaimResult, n driver.Nonce) bool {
	return (claim.Decision == driver.DecideReplay || claim.Decision == driver.DecideExpired) && claim.Record.Nonce == n
}

// doomedTxs are the doomed transactions of this process, for all receivers.
var doomedTxs doomed.Set

// lent is a transaction that everonce has begun and lends to the work. It is ended one time only: by a commit, or
// else by a rollback.
type lent[Tx any] struct {
	h       driver.TxHandle[Tx]
	runs    *runs[Tx]
	open    bool
	working bool               // the work has been called, and has not returned
	end     context.CancelFunc // of the work's context
}

// close rolls back a transaction that is still open, and reports whether it is open because the work did not
// return.
func (l *lent[Tx]) close(ctx context.Context) (unwound bool) {
	defer l.end()
	if !l.open {
		return false
	}
	_ = l.rollback(ctx) //nolint:errcheck // the caller reports why it was not committed
	return l.working
}

// rollback ends the transaction without a commit, past the end of the caller's context.
func (l *lent[Tx]) rollback(ctx context.Context) error {
	l.open = false
	l.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.runs.set.StoreTimeout)
	defer cancel()
	return l.h.Rollback(ctx)
}

// commit commits, past the end of the caller's context. It does not end the work's context before: that would close
// rows which the work left open while the commit is sent, and the connection with them.
func (l *lent[Tx]) commit(ctx context.Context, req driver.CommitRequest) error {
	l.open = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.runs.set.CompletionTimeout)
	defer cancel()
	_, err := l.h.Commit(ctx, req)
	return err
}

// commitAll is commit with the results of many operations.
func (l *lent[Tx]) commitAll(ctx context.Context, done []driver.CompleteRequest) error {
	all, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.runs.set.CompletionTimeout)
	defer cancel()
	if many, ok := l.h.(driver.TxBatch); ok {
		l.open = false
		_, err := many.CommitAll(all, driver.CommitAllRequest{Completions: done})
		return err
	}
	for _, req := range done {
		if _, err := l.h.Complete(all, req); err != nil {
			_ = l.rollback(ctx) //nolint:errcheck // the caller reports why it was not committed
			return err
		}
	}
	return l.commit(all, driver.CommitRequest{})
}

// inTx puts the attempt into a transaction: it has no lease and no steps, and lives as long as its work runs.
func (a *Attempt) inTx(tx any) *place {
	a.ctx.place = place{outer: a.place, attempt: a, tx: tx}
	return &a.ctx.place
}

// runIn calls the work inside the transaction, and rolls back if it fails. The error may be an errAgain.
func runIn[T, Tx any](ctx context.Context, l *lent[Tx], a *Attempt, at *place, work func(context.Context, Tx) (T, error)) (v T, err error) {
	inTx, end := context.WithTimeoutCause(ctx, l.runs.set.TxTimeout, ErrTxTooLong)
	l.end = end
	if a.ctx.parent == nil {
		a.ctx.parent = inTx
	}
	open := doomedTxs.Enter(l.h.Tx(), true)
	defer doomedTxs.Leave(open)
	l.working = true
	v, err = work(&placedContext{Context: inTx, place: at}, l.h.Tx())
	l.working = false
	why := open.Why()
	if err == nil && open.Doomed() { // a DoTx in it left writes that it could not undo
		err = a.fail(Failed, ErrTxDoomed, why)
	}
	if err == nil {
		return v, nil
	}
	why = errors.Join(why, context.Cause(inTx), l.rollback(ctx))
	if errors.Is(why, ErrTxTooLong) && !errors.Is(err, ErrTxTooLong) {
		err = errors.Join(ErrTxTooLong, err)
	}
	return v, l.runs.workError(err)
}

// InTx runs work in one transaction that everonce begins and commits, without a key: for several [DoTx] that commit
// together, and an adapter's writes beside them. It retries as [Transact] does, and the work must not end the
// transaction.
//
// An error of the work rolls back and is returned. If ctx ended before the work was called, the error is its cause.
// [ErrTxTooLong] is as in Transact. [ErrOutcomeUnknown]: the commit's answer was lost; call again with the keys inside
// to find out.
func (t *TxReceiver[Tx]) InTx(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	if t == nil || work == nil {
		return &Error{Outcome: Invalid, Sentinel: fmt.Errorf("%w: the receiver or the work is nil", ErrInvalidArgument)}
	}
	op := operation{core: &t.core, call: &t.defaults, place: placeOf(ctx)}
	if inTransactionOn(ctx, t.store) {
		return &Error{Outcome: Invalid, Sentinel: ErrInTransaction}
	}
	if err := op.ready(ctx); err != nil {
		return err
	}
	r := t.runs()
	for {
		err := inTxOnce(ctx, &r, &op, work)
		again := asAgain(err)
		if again == nil {
			return err
		}
		if end := r.next(ctx, &op, again); end != nil {
			return end
		}
	}
}

func inTxOnce[Tx any](ctx context.Context, r *runs[Tx], op *operation, work func(context.Context, Tx) error) error {
	lent, _, err := r.begin(ctx, driver.BeginRequest{Timeout: r.set.TxTimeout})
	switch {
	case asAgain(err) != nil:
		return err
	case err != nil:
		return op.storeFailed(ctx, err)
	}
	defer lent.close(ctx)
	if ctx.Err() != nil {
		return op.callerGone(ctx, nil)
	}
	a := &Attempt{operation: *op}
	_, err = runIn(ctx, lent, a, a.inTx(lent.h.Tx()), func(ctx context.Context, tx Tx) (struct{}, error) { return struct{}{}, work(ctx, tx) })
	if err != nil {
		return err
	}
	err = lent.commit(ctx, driver.CommitRequest{})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTxTooLong):
		return op.fail(Failed, ErrTxTooLong, err)
	}
	switch err = r.commitError(err); {
	case r.lost != nil: // only the keys inside show whether it took effect
		return op.commitUnknown(r.lost, nil)
	case asAgain(err) != nil:
		return err
	}
	return op.fail(Failed, ErrStore, err)
}
