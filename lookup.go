package everonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// Lookup returns what is known of a key without claiming it: what Do would return for a duplicate. Its outcomes are
// Replayed, Rejected, InProgress, Unknown, Expired, Elided and Mismatch, each with Do's error, and Failed: with
// [ErrNotFound] if there is no record, with [ErrReleased] if the last attempt was released, and with its cause if ctx
// has ended.
//
// Lookup writes nothing. So, with an identity secret, on a store that nobody has used yet, it fails with
// [driver.ErrIdentity] until [Receiver.Ready] has been called. Options: a Fingerprint, WithCodec; and those that the operation's
// Do has, because the RetryAfter of an unknown outcome depends on them: WithPolicy, EffectsInSteps.
func Lookup[T any](ctx context.Context, r AnyReceiver, key Key, opts ...CallOption) (Result[T], error) {
	if isNil(r) {
		return invalid[T](fmt.Errorf("%w: the receiver is nil", ErrInvalidArgument))
	}
	op, err := r.receiver().prepare(ctx, key, RecordID{}, opts, lookupOptions)
	if err != nil {
		return Result[T]{Outcome: Invalid}, err
	}
	if err := op.checkPlace(nil); err != nil && errors.Is(err, ErrInTransaction) {
		return Result[T]{Outcome: Invalid}, err
	}
	if err := op.compared(ctx); err != nil {
		return failed[T](err)
	}
	claim, err := op.peek(ctx)
	if err != nil {
		return failed[T](err)
	}
	switch claim.Decision {
	case driver.DecideAbsent:
		return Result[T]{Outcome: Failed}, op.fail(Failed, ErrNotFound, nil)
	case driver.DecideReleased:
		return Result[T]{Outcome: Failed}, op.fail(Failed, ErrReleased, nil)
	}
	return settled[T](&op, &claim)
}

// peek reads the record and decides as for a duplicate.
func (op *operation) peek(ctx context.Context) (driver.ClaimResult, error) {
	got, err := op.get(ctx)
	if err != nil {
		return driver.ClaimResult{}, op.storeFailed(ctx, err)
	}
	if !got.Found {
		return driver.ClaimResult{Decision: driver.DecideAbsent, Now: got.Now}, nil
	}
	claim := driver.ClaimResult{Record: got.Record, Now: got.Now}
	claim.Decision = driver.Decide(&got.Record, driver.ClaimRequest{Fingerprint: op.fingerprint, Nonce: driver.NewNonce()}, got.Now)
	switch claim.Decision {
	case driver.DecideClaimed:
		claim.Decision = driver.DecideReleased
	case driver.DecideNewer:
		return driver.ClaimResult{}, op.fail(StoreFailed, ErrStore, driver.ErrNewerRecord)
	}
	return claim, nil
}

func (op *operation) get(ctx context.Context) (driver.GetResult, error) {
	ctx, cancel := op.bounded(ctx)
	defer cancel()
	var got driver.GetResult
	var err error
	for try := 1; ; try++ {
		if got, err = op.store.Get(ctx, driver.GetRequest{ID: op.id, Brief: true}); err == nil || isFinal(err) || try == claimTries {
			return got, err
		}
		if retry.Pause(ctx, retry.Backoff(try)) != nil {
			return got, err
		}
		op.repeated()
	}
}
