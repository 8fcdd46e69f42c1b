package enginetest

import (
	"context"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A store that recalls answers a duplicate before the rest of the call is checked. An invalid call fails all the
// same.
func TestRecallHidesNothing(t *testing.T) {
	ctx, store := context.Background(), memstore.New(nil)
	r := newReceiver(t, store, everonce.Refuse, nil)
	first, _ := do(t, r, keyOf("x"), returns("value", nil), everonce.Executed, nil)
	do(t, r, keyOf("refused"), returns("", everonce.Permanent("declined", nil, nil)), everonce.Rejected, errAny)

	replay, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
	checkEqual(t, "the value", replay.Value, first.Value)
	_, err := do(t, r, keyOf("refused"), never(t), everonce.Rejected, errAny)
	checkEqual(t, "the failure", asPermanent(t, err).Code, "declined")

	t.Run("no work", func(t *testing.T) {
		do(t, r, keyOf("x"), nil, everonce.Invalid, everonce.ErrInvalidArgument)
	})
	t.Run("a key that is too long", func(t *testing.T) {
		do(t, r, keyOf(strings.Repeat("x", driver.MaxIDLen+1)), never(t), everonce.Invalid, everonce.ErrInvalidKey)
	})
	t.Run("a key with a control character", func(t *testing.T) {
		do(t, r, keyOf("x\n"), never(t), everonce.Invalid, everonce.ErrInvalidKey)
	})
	t.Run("the caller is gone", func(t *testing.T) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		res, err := everonce.Do(gone, r, keyOf("x"), never(t))
		checkOutcome(t, res, err, everonce.Failed, context.Canceled)
	})
	t.Run("no question for Reconcile", func(t *testing.T) {
		asking := newReceiver(t, store, everonce.Reconcile, nil)
		do(t, asking, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument)
	})
	t.Run("another type", func(t *testing.T) {
		res, err := everonce.Do(ctx, r, keyOf("x"), func(context.Context, *everonce.Attempt) (int, error) { return 0, errWork })
		checkOutcome(t, res, err, everonce.StoreFailed, everonce.ErrUndecodable)
	})
	t.Run("another identity secret", func(t *testing.T) {
		other := newReceiver(t, store, everonce.Refuse, &everonce.Options{IdentitySecret: []byte(strings.Repeat("s", 32))})
		do(t, other, keyOf("x"), never(t), everonce.StoreFailed, driver.ErrIdentity)
	})
	t.Run("inside another operation", func(t *testing.T) {
		res, err := everonce.Do(ctx, r, keyOf("outer"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			inner, err := everonce.Do(ctx, r, keyOf("x"), never(t))
			checkEqual(t, "the inner outcome", inner.Outcome, everonce.Replayed)
			_, nested := everonce.Do(ctx, r, keyOf("outer"), never(t))
			checkErr(t, nested, everonce.ErrNested)
			return inner.Value, err
		})
		checkOutcome(t, res, err, everonce.Executed, nil)
	})
}

// An elided result of bytes is not recalled as no bytes (rule 10).
func TestRecallOfAnElidedResult(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: everonce.Raw(), MaxResult: 1})
	do(t, r, keyOf("x"), returns("value", nil), everonce.Executed, nil)
	do(t, r, keyOf("x"), never(t), everonce.Elided, everonce.ErrResultElided)
}
