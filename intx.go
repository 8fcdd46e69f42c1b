package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// InTx runs work in one transaction that everonce begins and commits, without a key. It is for several [DoTx] that
// are to commit together, and for what an adapter writes beside them. It is run again as in [Transact].
//
// An error of the work rolls back and is returned. If ctx ended before the work was called, the error is the
// context's cause. [ErrTxTooLong] is as in Transact. [ErrOutcomeUnknown]: the answer to the commit was lost; calling
// again with the keys inside tells what became of it. The work must not end the transaction: see Transact.
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
