package enginetest

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A verdict is about the attempt that was looked at, not about one that has followed it.
func TestSettleTheAttemptThatWasLookedAt(t *testing.T) {
	ctx := context.Background()
	next := func(t *testing.T, s everonce.Store, r *everonce.Receiver) {
		t.Helper()
		checkErr(t, everonce.Settle(ctx, s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
		leaveUnknown(t, r, keyOf("x"))
	}
	for name, s := range map[string]everonce.Settlement{
		"done":           {Verdict: everonce.SettleDone, Value: "settled"},
		"not done":       {Verdict: everonce.SettleNotDone},
		"done, by force": {Verdict: everonce.SettleDone, Value: "settled", Force: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFaultStore()
			r := newReceiver(t, store, everonce.Refuse, nil)
			leaveUnknown(t, r, keyOf("x"))
			s.Token = store.record(t, keyOf("x")).Token

			// One has followed before the settlement began: the record is untouched.
			next(t, store.under, r)
			before := store.record(t, keyOf("x"))
			err := r.Settle(ctx, keyOf("x"), s)
			checkErr(t, err, everonce.ErrLeaseLost)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.LeaseLost)
			checkEqual(t, "the record", store.record(t, keyOf("x")), before)

			// One follows between the look and the claim.
			s.Token = before.Token
			store.on("Claim", store.count("Claim")+1, func(_ context.Context, call func() error) error {
				next(t, store.under, newReceiver(t, store.under, everonce.Refuse, nil))
				return call()
			})
			checkErr(t, r.Settle(ctx, keyOf("x"), s), everonce.ErrLeaseLost)
			after := store.record(t, keyOf("x"))
			checkEqual(t, "state", after.State, driver.StateAbandoned)
			do(t, r, keyOf("x"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)

			s.Token = after.Token
			checkErr(t, r.Settle(ctx, keyOf("x"), s), nil)
			s.Token = store.record(t, keyOf("x")).Token
			checkErr(t, r.Settle(ctx, keyOf("x"), s), everonce.ErrNotUnknown)
		})
	}
}

// By force a verdict takes the record of a live attempt, but not of another one than was looked at.
func TestSettleByForceSparesTheAttemptThatFollowed(t *testing.T) {
	ctx := context.Background()
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	leaveUnknown(t, r, keyOf("x"))
	old := s.record(t, keyOf("x")).Token
	checkErr(t, r.Settle(ctx, keyOf("x"), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		verdict := everonce.Settlement{Verdict: everonce.SettleNotDone, Token: old, Force: true}
		checkErr(t, everonce.Settle(context.Background(), s, a.Key().RecordID(), verdict), everonce.ErrLeaseLost)
		return "v", nil
	}, everonce.Executed, nil)
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)

	err := everonce.Settle(ctx, s, keyOf("nowhere").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone, Token: old})
	checkErr(t, err, everonce.ErrNotFound)
}

// A step is settled for the attempt that was looked at, too.
func TestSettleAStepOfTheAttemptThatWasLookedAt(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	states["step unknown"](t, s, r, keyOf("x"))
	rec := s.record(t, keyOf("x"))
	verdict := everonce.Settlement{Verdict: everonce.SettleDone, Value: "sent", Step: "mail", Token: rec.Token - 1}
	checkErr(t, r.Settle(context.Background(), keyOf("x"), verdict), everonce.ErrLeaseLost)
	checkEqual(t, "the record", s.record(t, keyOf("x")), rec)
	verdict.Token = rec.Token
	checkErr(t, r.Settle(context.Background(), keyOf("x"), verdict), nil)
	checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
}

// To name the attempt is not to force: one that is live keeps its record.
func TestSettleOfALiveAttemptByItsToken(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		err := everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone, Token: a.Token()})
		checkErr(t, err, everonce.ErrInProgress)
		return "v", nil
	}, everonce.Executed, nil)
}
