package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/doomed"
	"github.com/everonce/everonce/internal/retry"
)

// runs are the transactions that everonce runs for one call, one after the other until one has answered. Transact, a group of a batch,
// StepTx and InTx are loops over them: run once, and as long as the error is an errAgain, go on by next.
type runs[Tx any] struct {
	txs     driver.TxStore[Tx]
	set     *settings
	retries int
	lost    error // of a commit whose answer was lost, until it is known what became of it
	final   bool  // the work is done, and what is left has to be saved
}

// errAgain asks for another run because of what failed; at once if there is no cause, which is a step towards the answer.
type errAgain struct{ cause error }

func (e *errAgain) Error() string { return fmt.Sprintf("again: %v", e.cause) }
func (e *errAgain) Unwrap() error { return e.cause }

// asAgain returns err if it asks for another run, and nil otherwise.
func asAgain(err error) *errAgain {
	again, _ := err.(*errAgain) //nolint:errorlint // never wrapped
	return again
}

// outliving returns the context of what is left to do. While nobody knows what became of a commit, and once the work is done, that is
// not the caller's.
func (r *runs[Tx]) outliving(ctx context.Context) context.Context {
	if r.lost != nil || r.final {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// begin begins a transaction to lend. If its claim was not granted there is none, and the decision says why. An error asks for another
// run if the database was busy; not if the begin took all of its time, which is a failing store, whatever it says in the end.
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
	return nil, claim, r.unbegun(err)
}

// unbegun reads the error of a begin, or of a claim after it: it asks for another run if the database was busy, or to find out what
// became of a commit.
func (r *runs[Tx]) unbegun(err error) error {
	if r.lost != nil || !isFinal(err) && r.txs.ClassifyTx(err) == driver.TxErrorRetry {
		return &errAgain{err}
	}
	return err
}

// undone reads the error of the work: it asks for another run if it is the database's, and the work has not said more.
func (r *runs[Tx]) undone(err error) error {
	if readMarks(err) == endedUnknown && r.txs.ClassifyTx(err) == driver.TxErrorRetry {
		return &errAgain{err}
	}
	return err
}

// uncommitted reads the error of a commit: it asks for another run if nothing was committed, or its answer was lost.
func (r *runs[Tx]) uncommitted(err error) error {
	switch r.txs.ClassifyTx(err) {
	case driver.TxErrorCommitLost:
		r.lost = err
		return &errAgain{err}
	case driver.TxErrorRetry:
		return &errAgain{err}
	}
	return err
}

// runner is the call that runs are for.
type runner interface {
	fail(o Outcome, sentinel, cause error) *Error
	commitUnknown(lost, cause error) *Error
	callerGone(ctx context.Context, said error) *Error
	repeated()
}

// next makes the pause before another run. If there is to be none, it returns how the call ends.
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

// commitUnknown is the end of a call that could not find out what became of its commit.
func (op *operation) commitUnknown(lost, cause error) *Error {
	e := op.fail(Unknown, ErrOutcomeUnknown, ofStore(errors.Join(lost, cause)))
	e.RetryAfter = op.set.RetryAfter
	return e
}

// hadCommitted reports whether a claim has met the record of an earlier run.
func hadCommitted(claim *driver.ClaimResult, n driver.Nonce) bool {
	return (claim.Decision == driver.DecideReplay || claim.Decision == driver.DecideExpired) && claim.Record.Nonce == n
}

// doomedTxs are those of this process, whichever receiver met them.
var doomedTxs doomed.Set

// lent is a transaction that everonce has begun and lends to the work. It is ended once, whatever becomes of that: by a
// commit, or else by a rollback.
type lent[Tx any] struct {
	h       driver.TxHandle[Tx]
	runs    *runs[Tx]
	open    bool
	working bool               // the work has been called, and has not returned
	end     context.CancelFunc // of the work's context
}

// close rolls back what is still open, and reports whether that is because the work did not return.
func (l *lent[Tx]) close(ctx context.Context) (unwound bool) {
	defer l.end()
	if !l.open {
		return false
	}
	_ = l.rollback(ctx) //nolint:errcheck // why it was not committed is what is told
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

// commit commits, past the end of the caller's context. That of the work is not ended before: that would close rows which
// the work left open while the commit is sent, and take the connection with them.
func (l *lent[Tx]) commit(ctx context.Context, req driver.CommitRequest) error {
	l.open = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.runs.set.CompletionTimeout)
	defer cancel()
	_, err := l.h.Commit(ctx, req)
	return err
}

// commitAll is commit with many results.
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
			_ = l.rollback(ctx) //nolint:errcheck // why it was not committed is what is told
			return err
		}
	}
	return l.commit(all, driver.CommitRequest{})
}

// inTx makes the attempt one of a transaction: it has no lease and no steps, and lives as long as its
// work runs.
func (a *Attempt) inTx(tx any) *place {
	a.ctx.place = place{outer: a.place, attempt: a, tx: tx}
	return &a.ctx.place
}

// runIn calls the work in its place inside the transaction, and rolls back if it fails. The error may ask for another run.
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
	if err == nil && open.Doomed() { // a DoTx in it has left what it could not undo
		err = a.fail(Failed, ErrTxDoomed, why)
	}
	if err == nil {
		return v, nil
	}
	why = errors.Join(why, context.Cause(inTx), l.rollback(ctx))
	if errors.Is(why, ErrTxTooLong) && !errors.Is(err, ErrTxTooLong) {
		err = errors.Join(ErrTxTooLong, err)
	}
	return v, l.runs.undone(err)
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
	switch err = r.uncommitted(err); {
	case r.lost != nil: // only the keys inside tell
		return op.commitUnknown(r.lost, nil)
	case asAgain(err) != nil:
		return err
	}
	return op.fail(Failed, ErrStore, err)
}
