package enginetest

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// Counting effects by the outcome executed counts a settlement that says that the effect happened, and no other.
func TestObserverCountsSettlements(t *testing.T) {
	rec := &recorder{}
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: rec})
	for name, c := range map[string]struct {
		s    everonce.Settlement
		want everonce.Outcome
	}{
		"done":     {everonce.Settlement{Verdict: everonce.SettleDone, Value: "receipt"}, everonce.Executed},
		"refused":  {everonce.Settlement{Verdict: everonce.SettleDone, Failure: &everonce.PermanentError{Code: "declined"}}, everonce.Rejected},
		"not done": {everonce.Settlement{Verdict: everonce.SettleNotDone}, everonce.Failed},
	} {
		do(t, r, keyOf(name), returns("", errWork), everonce.Unknown, everonce.ErrOutcomeUnknown)
		rec.take(t)
		checkErr(t, r.Settle(context.Background(), keyOf(name), c.s), nil)
		checkEqual(t, name, rec.only(t).Outcome, c.want)
	}
}
