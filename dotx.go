package everonce

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/doomed"
)

// DoTx executes an operation once inside the caller's transaction. The work's writes through it, and their record,
// commit when the caller commits. Until then the outcome is provisional. One transaction may contain several calls
// of DoTx.
//
// DoTx never retries. The work runs behind a savepoint, and an error undoes its writes. It returns the errors of
// [Do], except:
//
//   - A permanent failure is recorded in the caller's transaction (Rejected).
//   - Any other error of the work (Failed): no record remains, and the caller's transaction is alive.
//   - [ErrTxDoomed]: the transaction did not survive. Roll back and rerun it with another handle: every later DoTx with
//     this tx is refused.
//   - [ErrInProgress]: another transaction or attempt holds the key. DoTx does not wait.
//   - [ErrConflict], an [ErrStore]: another transaction had the key first, and the work's writes are undone.
//     Roll back and rerun the transaction.
//
// The work must not end the transaction, not even by a statement's text: its effects may then commit without the
// record. On SQLite the caller's transaction must have begun IMMEDIATE.
//
// Options: a Fingerprint, WithLifetime, WithSummary, WithCodec, Unobserved.
func DoTx[T, Tx any](ctx context.Context, tx Tx, t *TxReceiver[Tx], key Key, work func(context.Context) (T, error), opts ...CallOption) (res Result[T], err error) {
	if t == nil || work == nil || isNil(tx) {
		return invalid[T](fmt.Errorf("%w: the transaction, the receiver or the work is nil", ErrInvalidArgument))
	}
	if !reflect.TypeOf(tx).Comparable() {
		return invalid[T](fmt.Errorf("%w: a transaction must be a pointer, not a %T", ErrInvalidArgument, tx))
	}
	op, err := t.prepare(ctx, key, RecordID{}, opts, doTxOptions)
	if err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	summarize, err := summaryOf[T](op.call)
	if err != nil {
		return invalid[T](err)
	}
	if op.observed() {
		o := op.observe(ctx, opDoTx, "")
		ctx = o.ctx
		defer func() {
			o.ev.Provisional = res.Provisional
			o.end(res.Outcome, err)
		}()
	}
	defer func() { op.warn(ctx, res.Outcome, res.Attempt, err) }()
	if err := op.checkPlace(tx); err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	open := doomedTxs.Enter(tx, false)
	defer doomedTxs.Leave(open)
	if open.Doomed() {
		return Result[T]{Outcome: Failed}, op.fail(Failed, ErrTxDoomed, nil)
	}
	if err := op.checkIdentity(ctx); err != nil { // binding it here could wait for the caller's transaction
		return errorResult[T](err)
	}
	j := &joined[Tx]{operation: op, t: t, tx: tx, open: open, savepoint: savepointAt(op.place)}
	return doTx(ctx, j, work, summarize)
}

// joined is the state of one DoTx: an operation inside the caller's transaction.
type joined[Tx any] struct {
	operation
	t    *TxReceiver[Tx]
	tx   Tx
	open *doomed.Tx // whether tx is doomed
	h    driver.TxHandle[Tx]
	// savepoint is the name of the savepoint before the work. It contains the depth, for DoTx inside DoTx.
	savepoint string
}

func savepointAt(p *place) string {
	depth := 0
	for ; p != nil; p = p.outer {
		depth++
	}
	return "everonce_" + strconv.Itoa(depth)
}

func doTx[T, Tx any](ctx context.Context, j *joined[Tx], work func(context.Context) (T, error), summarize func(T) []byte) (res Result[T], err error) {
	own := context.WithoutCancel(ctx) // cancelling one of our statements would end the caller's transaction
	if j.h, err = j.t.txs.Join(own, j.tx); err != nil {
		if errors.Is(err, ErrStore) { // the transaction has ended, for example with the context that began it
			return brokenAs[T](j, err)
		}
		return Result[T]{Outcome: Invalid}, j.fail(Invalid, err, nil)
	}
	if err := j.h.Savepoint(own, j.savepoint); err != nil {
		return brokenAs[T](j, err)
	}
	req := j.claimAs(ctx, driver.NewNonce())
	claim, err := j.h.Claim(own, req)
	if err != nil {
		return dissolve[T](own, j, StoreFailed, ErrStore, err)
	}
	if claim.Decision != driver.DecideClaimed {
		if err := j.h.ReleaseSavepoint(own, j.savepoint); err != nil {
			return brokenAs[T](j, err)
		}
		return resultOf[T](&j.operation, &claim)
	}
	if ctx.Err() != nil {
		return dissolve[T](own, j, Failed, context.Cause(ctx), nil)
	}
	res.Attempt = max(claim.Record.Attempt, 1)
	if j.ev != nil {
		j.ev.Attempt = res.Attempt
	}

	returned := false
	defer func() {
		if !returned { // a panic or Goexit, which goes on
			_, _ = dissolve[T](own, j, Failed, errUnwound, nil) //nolint:errcheck // the panic reports it
			if j.ev != nil {
				j.ev.Outcome, j.ev.Err = Failed, errUnwound
			}
		}
	}()
	a := &Attempt{operation: j.operation, token: claim.Record.Token, nonce: req.Nonce, number: res.Attempt}
	a.ctx.parent = ctx
	inside := &placedContext{Context: ctx, place: a.inTx(j.tx)}
	value, workErr := work(inside)
	returned = true
	if j.open.Doomed() { // by a DoTx inside the work, even if the work ignored its error
		return brokenAs[T](j, j.open.With(workErr))
	}

	complete := driver.CompleteRequest{ID: j.id, Token: claim.Record.Token, Nonce: req.Nonce, Lifetime: j.call.lifetime}
	if workErr == nil {
		saved, elided := encode(j.core, j.call, value, summarize)
		if j.ev != nil {
			j.ev.Elided = elided
		}
		complete.Result = saved
		_, err := j.h.Complete(own, complete)
		if errors.Is(err, driver.ErrTooLarge) && saved.Kind == driver.ResultValue {
			if j.ev != nil {
				j.ev.Elided = "store"
			}
			complete.Result = withoutData(saved)
			if _, again := j.h.Complete(own, complete); again == nil {
				err = nil
			} else { // the rejected statement may have aborted the transaction
				err = errors.Join(err, again)
			}
		}
		if err != nil {
			return dissolve[T](own, j, StoreFailed, ErrStore, err)
		}
		if err := j.h.ReleaseSavepoint(own, j.savepoint); err != nil {
			return brokenAs[T](j, err)
		}
		res.Value, res.Outcome, res.Provisional = value, Executed, true
		return res, nil
	}

	if err := j.h.RollbackTo(own, j.savepoint); err != nil { // proves that the transaction is alive
		return brokenAs[T](j, errors.Join(workErr, err))
	}
	how, failure := j.set.judge(workErr)
	if how != endedRejected {
		if err := j.h.ReleaseSavepoint(own, j.savepoint); err != nil {
			return brokenAs[T](j, errors.Join(workErr, err))
		}
		res.Outcome = Failed
		return res, j.asNested(workErr)
	}
	failure, err = failure.savedBy(func(saved driver.SavedResult) error {
		complete.Result = saved
		_, err := j.h.Record(own, driver.RecordRequest{Claim: req, Complete: complete})
		return err
	})
	if err != nil {
		return dissolve[T](own, j, StoreFailed, ErrStore, err)
	}
	if err := j.h.ReleaseSavepoint(own, j.savepoint); err != nil {
		return brokenAs[T](j, err)
	}
	res.Outcome, res.Provisional = Rejected, true
	return res, failure
}

// dissolve rolls back to the savepoint, which also proves that the transaction is alive.
func dissolve[T, Tx any](ctx context.Context, j *joined[Tx], o Outcome, sentinel, cause error) (Result[T], error) {
	err := j.h.RollbackTo(ctx, j.savepoint)
	if err == nil {
		err = j.h.ReleaseSavepoint(ctx, j.savepoint)
	}
	if err != nil {
		return brokenAs[T](j, errors.Join(cause, err))
	}
	return Result[T]{Outcome: o}, j.fail(o, sentinel, cause)
}

// brokenAs marks the caller's transaction as doomed.
func brokenAs[T, Tx any](j *joined[Tx], cause error) (Result[T], error) {
	j.open.Doom(cause)
	return Result[T]{Outcome: Failed}, j.fail(Failed, ErrTxDoomed, ofStore(cause))
}
