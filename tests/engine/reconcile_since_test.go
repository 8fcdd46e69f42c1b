package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A reconciler that looks for the effect from Since on finds it, however many attempts came in between
// that only asked, were taken back, or were put back by a settlement that failed.
func TestSinceIsALowerBoundOfTheEffect(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, s *faultStore, r *everonce.Receiver, key everonce.Key){
		"nothing": func(*testing.T, *faultStore, *everonce.Receiver, everonce.Key) {},
		"an attempt that could not ask": func(t *testing.T, _ *faultStore, r *everonce.Receiver, key everonce.Key) {
			do(t, r, key, never(t), everonce.Unknown, errNet, answer(everonce.StillUnknown[string](), errNet))
		},
		"a claim that was taken back": func(t *testing.T, s *faultStore, r *everonce.Receiver, key everonce.Key) {
			s.on("Claim", 0, lose(errNet))
			do(t, r, key, never(t), everonce.StoreFailed, errNet, askNever(t))
			s.heal()
		},
		"a settlement that was put back": func(t *testing.T, s *faultStore, r *everonce.Receiver, key everonce.Key) {
			s.on("Complete", 0, refuse(errNet))
			checkErr(t, r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleDone}), errNet)
			s.heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faultStore{under: memstore.New(nil)}
				r := newReceiver(t, s, everonce.Reconcile, nil)
				key := keyOf("x")
				var ledger []time.Time // of the other side
				charge := func(context.Context, *everonce.Attempt) (string, error) {
					ledger = append(ledger, time.Now())
					return "", errWork
				}
				do(t, r, key, charge, everonce.Unknown, errWork, askNever(t))
				for range 2 {
					time.Sleep(10 * time.Minute)
					between(t, s, r, key)
				}
				time.Sleep(10 * time.Minute)
				res, _ := do(t, r, key, charge, everonce.Executed, nil, everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (verdict, error) {
					for _, at := range ledger {
						if !at.Truncate(time.Microsecond).Before(a.Since) {
							return everonce.Happened("found"), nil
						}
					}
					return everonce.NotHappened[string](), nil
				}))
				checkEqual(t, "value", res.Value, "found")
				checkEqual(t, "effects", len(ledger), 1)
			})
		})
	}
}
