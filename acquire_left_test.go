package everonce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// A caller that leaves while its claim is granted: work that is called with a dead context would fail at
// once, and nobody could tell what it has done.
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
			checkEqual(t, "state", s.record(t, keyOf("x")).State, everonce.StateReleased)
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
	checkEqual(t, "state", s.record(t, keyOf("x")).State, everonce.StateAbandoned)
	res, _ = do(t, r, keyOf("x"), never(t), everonce.Executed, nil, answer(everonce.Happened("found"), nil))
	checkEqual(t, "value", res.Value, "found")
}

// A claim is lost on its way and taken back; its packet arrives afterwards, when nobody owns it. On a
// record that an earlier attempt has released it is refused as it is on none (rule 4).
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
				lost := requests[everonce.ClaimRequest](&s.faults, "Claim")[before:]
				for _, late := range lost {
					checkEqual(t, "every try has the nonce of the first", late.Nonce, lost[0].Nonce)
					_, err := s.under.Claim(context.Background(), late)
					checkErr(t, err, everonce.ErrAttemptEnded)
				}
				checkEqual(t, "state", s.record(t, keyOf("x")).State, everonce.StateReleased)
				time.Sleep(time.Hour)
				do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
			})
		})
	}
}
