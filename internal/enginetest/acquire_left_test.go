package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A caller that leaves while its claim is granted: work called with an ended context would fail at once, and its
// outcome would be unknown.
func TestCallerGoneWhenTheClaimIsGranted(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, p, nil)
			ctx, cancel := context.WithCancelCause(context.Background())
			s.on("Claim", 1, func(_ context.Context, call func() error) error {
				defer cancel(errWork)
				return call()
			})
			res, err := everonce.Do(ctx, r, keyOf("x"), never(t), askNever(t))
			checkOutcome(t, res, err, everonce.Failed, errWork)
			checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
			do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, askNever(t))
		})
	}
}

// The same where the claim took over what an earlier attempt left: that is still unknown.
func TestCallerGoneWhenATakeoverIsGranted(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reconcile, nil)
	leaveUnknown(t, r, keyOf("x"))
	ctx, cancel := context.WithCancel(context.Background())
	s.on("Claim", s.count("Claim")+1, func(_ context.Context, call func() error) error {
		defer cancel()
		return call()
	})
	res, err := everonce.Do(ctx, r, keyOf("x"), never(t), askNever(t))
	checkOutcome(t, res, err, everonce.Failed, context.Canceled)
	checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateAbandoned)
	res, _ = do(t, r, keyOf("x"), never(t), everonce.Executed, nil, answer(everonce.Happened("found"), nil))
	checkEqual(t, "value", res.Value, "found")
}

// A claim is lost on its way and taken back; its packet arrives afterwards, when no call owns it. It is refused on
// a record that an earlier attempt has released, and without a record too (rule 4).
func TestLateClaimAfterItsRetractIsRefused(t *testing.T) {
	for _, state := range []string{"absent", "released"} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				states[state](t, s, r, keyOf("x"))
				before := s.count("Claim")
				s.on("Claim", 0, refuse(errNet))
				do(t, r, keyOf("x"), never(t), everonce.StoreFailed, errNet)
				s.heal()
				lost := requests[driver.ClaimRequest](&s.faults, "Claim")[before:]
				for _, late := range lost {
					checkEqual(t, "every try has the nonce of the first", late.Nonce, lost[0].Nonce)
					_, err := s.under.Claim(context.Background(), late)
					checkErr(t, err, everonce.ErrAttemptEnded)
				}
				checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
				time.Sleep(time.Hour)
				do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
			})
		})
	}
}

// A finished operation is replayed however long the store took to answer, even to a caller that has gone meanwhile:
// nothing is called for it.
func TestLateReplayIsAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second, StoreTimeout: time.Hour})
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		ctx, cancel := context.WithCancel(context.Background())
		s.on("Claim", 0, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(time.Minute)
			cancel()
			return err
		})
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
		checkOutcome(t, res, err, everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, "v")
		checkEqual(t, "releases", s.count("Release"), 0)
	})
}

// An operation is found inside its own work at any depth, whatever stands between: to wait for it would be to wait
// for itself.
func TestNestedAtAnyDepth(t *testing.T) {
	r, other := newReceiver(t, memstore.New(nil), everonce.Refuse, nil), newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	x := newTxReceiver(t, newMapStore(), nil)
	for name, between := range map[string]func(ctx context.Context, inner func(context.Context) error) error{
		"Do": func(ctx context.Context, inner func(context.Context) error) error {
			_, err := everonce.Do(ctx, other, keyOf("between"), func(ctx context.Context, _ *everonce.Attempt) (string, error) { return "", inner(ctx) })
			return err
		},
		"Transact": func(ctx context.Context, inner func(context.Context) error) error {
			_, err := everonce.Transact(ctx, x, keyOf("between"), func(ctx context.Context, _ *mapTx) (int, error) { return 0, inner(ctx) })
			return err
		},
		"InTx": func(ctx context.Context, inner func(context.Context) error) error {
			return x.InTx(ctx, func(ctx context.Context, _ *mapTx) error { return inner(ctx) })
		},
	} {
		do(t, r, keyOf(name), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			checkErr(t, between(ctx, func(ctx context.Context) error {
				res, err := everonce.Do(ctx, r, a.Key(), never(t), everonce.WithWait(time.Hour))
				checkOutcome(t, res, err, everonce.Invalid, everonce.ErrNested)
				_, err = everonce.Step(ctx, a, "s", stepReturns("", nil)) // of another store than the transaction's
				return err
			}), nil)
			return "", nil
		}, everonce.Executed, nil)
	}
}
