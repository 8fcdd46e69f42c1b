package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// spoil overwrites what a caller holds.
func spoil(b []byte) {
	for i := range b {
		b[i] = 'X'
	}
}

// Changing a value, or a returned summary, does not change other callers'.
func TestSummariesAreNotSharedWithTheStore(t *testing.T) {
	for name, o := range map[string]everonce.Options{"expired": {}, "elided": {MaxResult: 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Codec = everonce.Raw()
				r := newReceiver(t, memstore.New(nil), everonce.Refuse, &o)
				call := func() (everonce.Result[[]byte], error) {
					return everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) ([]byte, error) {
						return []byte("200 ok"), nil
					}, everonce.WithSummary(func(b []byte) []byte { return b[:3] }))
				}
				first, err := call()
				checkErr(t, err, nil)
				checkEqual(t, "outcome", first.Outcome, everonce.Executed)
				spoil(first.Value)
				if name == "expired" {
					again, err := call()
					checkErr(t, err, nil)
					checkEqual(t, "replay", string(again.Value), "200 ok")
					spoil(again.Value)
					time.Sleep(everonce.ForWeb().Retention)
				}
				for range 2 {
					_, err := call()
					summary := asError(t, err).Summary
					checkEqual(t, "summary", string(summary), "200")
					spoil(summary)
				}
			})
		})
	}
}

func TestSettlementsAreNotSharedWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
		encoded, summary := []byte(`"v"`), []byte("see #7")
		for _, id := range []string{"value", "none", "failure"} {
			leaveUnknown(t, r, keyOf(id))
		}
		settle := func(id string, s everonce.Settlement) {
			s.Verdict, s.Summary = everonce.SettleDone, summary
			checkErr(t, r.Settle(context.Background(), keyOf(id), s), nil)
		}
		settle("value", everonce.Settlement{Encoded: encoded})
		settle("none", everonce.Settlement{})
		settle("failure", everonce.Settlement{Failure: &everonce.PermanentError{Code: "declined"}})
		spoil(encoded)
		spoil(summary)
		res, _ := do(t, r, keyOf("value"), never(t), everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, "v")
		time.Sleep(everonce.ForWeb().Retention)
		for _, id := range []string{"value", "none", "failure"} {
			_, err := do(t, r, keyOf(id), never(t), everonce.Expired, everonce.ErrExpired)
			checkEqual(t, "summary of "+id, string(asError(t, err).Summary), "see #7")
		}
	})
}
