package everonce

import (
	"context"
	"errors"
	"fmt"
)

// endedByWork is the end of an operation whose work has ended the transaction that it was lent ([TxErrorEnded]). Its effect may
// have been committed without the record, so that a repetition would have it once more: what is recorded is that nobody knows.
func (op *operation) endedByWork(ctx context.Context, cause error) *Error {
	if err := op.abandon(ctx); err != nil {
		cause = errors.Join(cause, fmt.Errorf("nor is it recorded that the outcome is unknown: %w", err))
	}
	return op.fail(Unknown, ErrOutcomeUnknown, cause)
}

// abandon leaves an abandoned record of a key that has none. Where another attempt has the key by now, its record stands.
func (op *operation) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), op.set.CompletionLimit)
	defer cancel()
	nonce := NewNonce()
	claim, err := op.store.Claim(ctx, ClaimRequest{
		ID: op.id, Scope: op.key.Scope, Name: op.key.ID, Nonce: nonce, Owner: op.set.Owner,
		Fingerprint: op.fingerprint, Lease: op.set.CompletionLimit, Lifetime: op.call.lifetime,
	})
	if err != nil || claim.Decision != DecideClaimed {
		return err
	}
	_, err = op.store.Release(ctx, ReleaseRequest{
		ID: op.id, Scope: op.key.Scope, Name: op.key.ID, Token: claim.Record.Token, Nonce: nonce,
		State: StateAbandoned, ErrorClass: classTxEnded, Lifetime: op.call.lifetime,
	})
	return err
}
