package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/doomed"
	"github.com/everonce/everonce/internal/retry"
)

// doomedTxs are those of this process, whichever receiver met them.
var doomedTxs doomed.Set

// lent is a transaction that everonce has begun and lends to the work. It is ended once, whatever becomes of that: by a
// commit, or else by a rollback.
type lent[Tx any] struct {
	h       driver.TxHandle[Tx]
	set     *settings
	open    bool
	working bool               // the work has been called, and has not returned
	end     context.CancelFunc // of the work's context
}

// begin begins a transaction to lend. Where its claim was not granted there is none, and the decision tells. After an error, again says
// that the database was busy: not of a begin that took all of its time, which is a failing store, whatever it says in the end.
func begin[Tx any](ctx context.Context, txs driver.TxStore[Tx], set *settings, req driver.BeginRequest) (l *lent[Tx], claim driver.ClaimResult, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, set.StoreTimeout)
	defer cancel()
	h, claim, err := txs.Begin(ctx, req)
	if err != nil {
		return nil, claim, !isFinal(err) && ctx.Err() == nil && txs.ClassifyTx(err) == driver.TxErrorRetry, err
	}
	return &lent[Tx]{h: h, set: set, open: true, end: func() {}}, claim, false, nil
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.set.StoreTimeout)
	defer cancel()
	return l.h.Rollback(ctx)
}

// commit commits, past the end of the caller's context. That of the work is not ended before: that would close rows which
// the work left open while the commit is sent, and take the connection with them.
func (l *lent[Tx]) commit(ctx context.Context, req driver.CommitRequest) error {
	l.open = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.set.CompletionLimit)
	defer cancel()
	_, err := l.h.Commit(ctx, req)
	return err
}

// commitAll is commit with many results.
func (l *lent[Tx]) commitAll(ctx context.Context, done []driver.CompleteRequest) error {
	all, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.set.CompletionLimit)
	defer cancel()
	if many, ok := l.h.(driver.TxBatch); ok {
		l.open = false
		return many.CommitAll(all, done)
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

// runIn calls the work in its place inside the transaction, and rolls back where it fails.
func runIn[T, Tx any](ctx context.Context, l *lent[Tx], a *Attempt, at *place, work func(context.Context, Tx) (T, error)) (v T, err error) {
	inTx, end := context.WithTimeoutCause(ctx, l.set.TxTimeout, ErrTxTooLong)
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
	return v, err
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
	for try := 1; ; try++ {
		again, err := inTxOnce(ctx, t, &op, work)
		if !again {
			return err
		}
		if try > t.set.TxRetries {
			return &Error{Outcome: Failed, Sentinel: ErrStore, Cause: err}
		}
		if retry.Pause(ctx, retry.Backoff(try)) != nil {
			return op.callerGone(ctx, err)
		}
	}
}

func inTxOnce[Tx any](ctx context.Context, t *TxReceiver[Tx], op *operation, work func(context.Context, Tx) error) (again bool, err error) {
	lent, _, again, err := begin(ctx, t.txs, t.set, driver.BeginRequest{Timeout: t.set.TxTimeout})
	if err != nil {
		return again, op.storeFailed(ctx, err)
	}
	defer lent.close(ctx)
	if ctx.Err() != nil {
		return false, op.callerGone(ctx, nil)
	}
	a := &Attempt{operation: *op}
	_, err = runIn(ctx, lent, a, a.inTx(lent.h.Tx()), func(ctx context.Context, tx Tx) (struct{}, error) { return struct{}{}, work(ctx, tx) })
	if err != nil {
		return t.txs.ClassifyTx(err) == driver.TxErrorRetry && readMarks(err) == endedUnknown, err
	}
	err = lent.commit(ctx, driver.CommitRequest{})
	if err == nil {
		return false, nil
	}
	switch class := t.txs.ClassifyTx(err); {
	case errors.Is(err, ErrTxTooLong):
		return false, &Error{Outcome: Failed, Sentinel: ErrTxTooLong, Cause: err}
	case class == driver.TxErrorCommitLost:
		return false, &Error{Outcome: Unknown, Sentinel: ErrOutcomeUnknown, RetryAfter: t.set.RetryAfter, Cause: ofStore(err)}
	default:
		return class == driver.TxErrorRetry, &Error{Outcome: Failed, Sentinel: ErrStore, Cause: err}
	}
}
