package everonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// Result is the result of one call.
type Result[T any] struct {
	// Value is the work's value, run now or replayed; zero unless the error is nil or [ErrNotRecorded].
	Value T
	// Outcome is always set.
	Outcome Outcome
	// Attempt is the number of the attempt that ran in this call, or 0.
	Attempt int
	// Provisional: the result holds once the caller's transaction has committed.
	Provisional bool
	// Reconciled: a reconciler found an earlier attempt's effect; the work did not run in this call.
	Reconciled bool
}

// encode returns the saved form of a value. A value that cannot be kept is elided, and elided says why.
func encode[T any](r *core, c *call, v T, summarize func(T) []byte) (saved driver.SavedResult, elided string) {
	saved = driver.SavedResult{Kind: driver.ResultValue, Codec: c.codecName}
	if summarize != nil {
		if saved.Summary = bytes.Clone(trySummary(v, summarize)); len(saved.Summary) > driver.MaxSummaryLen {
			saved.Summary = nil
		}
	}
	var err error
	if saved.Data, err = marshal(c.codec, v); err != nil {
		return withoutData(saved), "encoding"
	}
	if len(saved.Data) > r.set.MaxResult {
		return withoutData(saved), "size"
	}
	return saved, ""
}

func withoutData(s driver.SavedResult) driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultElided, Codec: s.Codec, Summary: s.Summary}
}

// marshal encodes v with the codec.
func marshal[T any](c Codec, v T) (data []byte, err error) {
	if _, raw := c.(rawCodec); raw {
		switch v := any(v).(type) { // no trip through an interface that would copy v to the heap
		case []byte:
			return append([]byte{}, v...), nil
		case string:
			return []byte(v), nil
		}
	}
	return marshalAny(c, v)
}

// marshalAny is marshal. A panic of the codec becomes an error: the effect is done, and must not be left
// unrecorded.
func marshalAny(c Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %T", p)
		}
	}()
	return c.Marshal(v)
}

func trySummary[T any](v T, summarize func(T) []byte) (b []byte) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return summarize(v)
}

// decode returns the value of a saved result. The error wraps ErrUndecodable.
func decode[T any](call *call, saved *driver.SavedResult) (v T, err error) {
	c, ok := codecFor(saved.Codec, call.codec, call.codecName)
	if !ok {
		return v, fmt.Errorf("%w: the receiver has no codec %q (use the one that wrote it)", ErrUndecodable, saved.Codec)
	}
	if _, raw := c.(rawCodec); raw {
		if _, ok := any(v).([]byte); ok { // no trip to the heap for v
			v, _ = any(append([]byte{}, saved.Data...)).(T)
			return v, nil
		}
	}
	return unmarshal[T](c, saved.Data)
}

func unmarshal[T any](c Codec, data []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			var zero T
			v, err = zero, fmt.Errorf("%w: the codec panicked: %T", ErrUndecodable, p)
		}
	}()
	if err = c.Unmarshal(data, &v); err != nil {
		var zero T
		return zero, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return v, nil
}

// recalls reports whether a call without options may be answered with the result that the store recalls for its
// key, before any other check. A result found under the key's ID proves the key valid.
func (r *Receiver) recalls(ctx context.Context, key Key) bool {
	return r.quick && r.identity.done.Load() && key.fits() && ctx.Err() == nil && placeOf(ctx) == nil
}

// recalled returns the saved value of a finished operation. If it reports false, the call must claim.
func recalled[T any](ctx context.Context, r *Receiver, id RecordID) (v T, ok bool) {
	saved, err := r.recaller.Recall(ctx, driver.RecallRequest{ID: id})
	if err != nil || !saved.Found || saved.Result.Kind != driver.ResultValue {
		return v, false
	}
	v, err = decode[T](&r.defaults, &saved.Result)
	return v, err == nil
}

// resultOf returns the result of a call whose claim was not granted.
func resultOf[T any](op *operation, claim *driver.ClaimResult) (Result[T], error) {
	op.foundRecord(claim.Record.Owner, claim.Record.CompletedAt, claim.Now)
	if claim.Decision != driver.DecideReplay {
		op.compareAlg(claim.Record.Fingerprint)
		e := op.refusal(claim)
		return Result[T]{Outcome: e.Outcome}, e
	}
	return replayed[T](op, claim.Record.Fingerprint, &claim.Record.Result)
}

// replayed returns a saved result, whose fingerprint has been compared.
func replayed[T any](op *operation, saved driver.Fingerprint, result *driver.SavedResult) (res Result[T], err error) {
	op.compareAlg(saved)
	res.Value, res.Outcome, err = replay[T](op, result)
	return res, err
}

// compareAlg notes, for the observer, that the two fingerprints have different Algs, and so were not compared.
func (op *operation) compareAlg(saved driver.Fingerprint) {
	if op.ev != nil {
		op.ev.AlgChanged = !op.fingerprint.IsZero() && !saved.IsZero() && op.fingerprint.Alg != saved.Alg
	}
}

// replay returns a saved result as the first caller got it, decoded by the call's codec or a built-in one.
func replay[T any](op *operation, saved *driver.SavedResult) (v T, o Outcome, err error) {
	switch saved.Kind {
	case driver.ResultValue:
		if v, err = decode[T](op.call, saved); err != nil {
			e := op.fail(StoreFailed, ErrUndecodable, err)
			e.Kind = saved.Kind
			return v, StoreFailed, e
		}
		return v, Replayed, nil
	case driver.ResultFailure:
		p, err := loadFailure(*saved)
		if err != nil {
			return v, StoreFailed, op.fail(StoreFailed, ErrUndecodable, err)
		}
		return v, Rejected, p
	case driver.ResultElided:
		e := op.fail(Elided, ErrResultElided, nil)
		e.Summary, e.Kind = bytes.Clone(saved.Summary), saved.Kind
		return v, Elided, e
	}
	return v, StoreFailed, op.fail(StoreFailed, ErrStore, fmt.Errorf("%w: a completed record without a result", driver.ErrCorruptRecord))
}

// Lookup returns what is known about a key without claiming it: the result that [Do] would return for a duplicate,
// or Failed with [ErrNotFound], [ErrReleased] or ctx's cause.
//
// Lookup writes nothing. So, with an identity secret, on a new store, it fails with [ErrIdentity] until
// [Receiver.Ready] has been called. Options: a Fingerprint, WithCodec, and, for the RetryAfter of an unknown outcome,
// the operation's own WithPolicy and EffectsInSteps.
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
	if err := op.checkIdentity(ctx); err != nil {
		return errorResult[T](err)
	}
	claim, err := op.peek(ctx)
	if err != nil {
		return errorResult[T](err)
	}
	switch claim.Decision {
	case driver.DecideAbsent:
		return Result[T]{Outcome: Failed}, op.fail(Failed, ErrNotFound, nil)
	case driver.DecideReleased:
		return Result[T]{Outcome: Failed}, op.fail(Failed, ErrReleased, nil)
	}
	return resultOf[T](&op, &claim)
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
	ctx, cancel := op.storeContext(ctx)
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
