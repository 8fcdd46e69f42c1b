package enginetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// Lookup binds a store to no secret, nor to having none: the first caller does not lock the service out.
func TestLookupBindsNothing(t *testing.T) {
	ctx := context.Background()
	secret := &everonce.Options{IdentitySecret: bytes.Repeat([]byte("x"), 32)}
	s := memstore.New(nil)
	without, with := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, secret)
	bound := func(want bool) {
		t.Helper()
		kept, err := s.ReadIdentity(ctx, driver.ReadIdentityRequest{})
		checkErr(t, err, nil)
		checkEqual(t, "bound", kept.Bound, want)
	}
	for range 2 {
		res, err := everonce.Lookup[string](ctx, without, keyOf("x"))
		checkOutcome(t, res, err, everonce.Failed, everonce.ErrNotFound)
		bound(false)
	}
	res, err := everonce.Lookup[string](ctx, with, keyOf("x"))
	checkOutcome(t, res, err, everonce.StoreFailed, driver.ErrIdentity) // it is unknown whether it is that store
	checkErr(t, err, everonce.ErrStore)
	bound(false)

	checkErr(t, with.Ready(ctx), nil)
	bound(true)
	do(t, with, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	res, err = everonce.Lookup[string](ctx, newReceiver(t, s, everonce.Refuse, secret), keyOf("x"))
	checkOutcome(t, res, err, everonce.Replayed, nil)
	checkEqual(t, "value", res.Value, "v")
	other := newReceiver(t, s, everonce.Refuse, nil)
	for _, r := range []*everonce.Receiver{without, other} {
		res, err = everonce.Lookup[string](ctx, r, keyOf("x"))
		checkOutcome(t, res, err, everonce.StoreFailed, driver.ErrIdentity)
	}
}

// unreadIdentity is a store that does not say what it is bound to.
type unreadIdentity struct{ *memstore.Store }

func (*unreadIdentity) ReadIdentity(context.Context, driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	return res, errors.New("the store is away")
}

// A binding that cannot be read is not taken for no binding: the call fails, and neither finds nor does anything.
func TestAnIdentityThatCanNotBeReadIsNoIdentity(t *testing.T) {
	r := newReceiver(t, &unreadIdentity{memstore.New(nil)}, everonce.Refuse, nil)
	res, err := everonce.Lookup[string](context.Background(), r, keyOf("x"))
	checkOutcome(t, res, err, everonce.StoreFailed, everonce.ErrStore)
}
