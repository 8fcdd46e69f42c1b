package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
)

// endedByWork is the end of an operation whose work has ended the transaction that it was lent ([driver.TxErrorEnded]). Its effect may
// have been committed without the record, so that a repetition would have it once more: what is recorded is that nobody knows. The
// context bounds that, and is not the caller's.
func (op *operation) endedByWork(ctx context.Context, cause error) *Error {
	if err := op.abandon(ctx); err != nil {
		cause = errors.Join(cause, fmt.Errorf("nor is it recorded that the outcome is unknown: %w", err))
	}
	return op.fail(Unknown, ErrOutcomeUnknown, endedAs(cause))
}

// endedAs is the cause of such an end, by its sentinel, whatever the store has called it.
func endedAs(cause error) error {
	if errors.Is(cause, ErrTxDoomed) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrTxDoomed, cause)
}

// abandon leaves an abandoned record of a key that has none. Where another attempt has the key by now, its record stands, and nothing tells
// of this one. It is as persistent as a completion: what is not recorded runs again.
func (op *operation) abandon(ctx context.Context) error {
	nonce := driver.NewNonce()
	write := func(ctx context.Context) error { return op.abandonOnce(ctx, nonce) }
	one, cancel := context.WithTimeout(ctx, op.set.StoreTimeout)
	err := write(one)
	cancel()
	return op.persistOn(ctx, op.ev, err, write)
}

func (op *operation) abandonOnce(ctx context.Context, nonce driver.Nonce) error {
	req := op.claimAs(nonce)
	req.Lease = op.set.CompletionLimit
	claim, err := op.store.Claim(ctx, req)
	if errors.Is(err, ErrAttemptEnded) { // by a release whose answer was lost
		return nil
	}
	if err != nil || claim.Decision != driver.DecideClaimed {
		return err
	}
	_, err = op.store.Release(ctx, driver.ReleaseRequest{
		ID: op.id, Scope: op.key.Scope, Name: op.key.ID, Token: claim.Record.Token, Nonce: nonce,
		State: driver.StateAbandoned, ErrorClass: classTxEnded, Lifetime: op.call.lifetime,
	})
	return err
}
