package everonce

import (
	"context"
	"errors"

	"github.com/everonce/everonce/driver"
)

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
	open := doomed.enter(l.h.Tx(), true)
	defer doomed.leave(open)
	l.working = true
	v, err = work(&placedContext{Context: inTx, place: at}, l.h.Tx())
	l.working = false
	why := open.why()
	if err == nil && open.doomed.Load() { // a DoTx in it has left what it could not undo
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
