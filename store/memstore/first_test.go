package memstore

import (
	"reflect"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// What is done in the entry itself is what package transition does.
func TestFirstAttemptIsWhatTransitionMakesOfIt(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 123000, time.UTC)
	later := now.Add(1500 * time.Microsecond)
	life := driver.Lifetime{Retention: time.Hour + 999, Remember: time.Minute + 1}
	for _, expires := range []bool{false, true} {
		for _, f := range []driver.Fingerprint{{}, driver.Fingerprint(everonce.FingerprintOf("EUR", 7))} {
			req := driver.ClaimRequest{
				ID: driver.RecordID{1, 31: 2}, Scope: "shop", Name: "order-7", Nonce: driver.NewNonce(), Owner: "me",
				Lease: 30*time.Second + 7, Fingerprint: f, Lifetime: life, ExpireUnsettled: expires,
			}
			e := &entry{id: req.ID}
			e.begin(&req, microsOf(now))
			rec, _, err := transition.Claim(nil, req, now)
			if err != nil {
				t.Fatal(err)
			}
			same(t, e, rec)

			done := driver.CompleteRequest{
				ID: req.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life,
				Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done"), Summary: []byte("201")},
			}
			for name, wrong := range map[string]func(*driver.CompleteRequest){
				"token": func(r *driver.CompleteRequest) { r.Token++ },
				"nonce": func(r *driver.CompleteRequest) { r.Nonce = driver.NewNonce() },
			} {
				other := done
				wrong(&other)
				if e.complete(&other, microsOf(later)) {
					t.Errorf("%s: completed; want that left to transition", name)
				}
			}
			same(t, e, rec)
			if !e.complete(&done, microsOf(later)) {
				t.Fatal("not completed")
			}
			if rec, err = transition.Complete(rec, done, later); err != nil {
				t.Fatal(err)
			}
			same(t, e, rec)
			if e.complete(&done, microsOf(later)) {
				t.Error("completed twice; want the second left to transition")
			}
		}
	}
}

// same reports where e differs from rec, which it would keep in microseconds.
func same(t *testing.T, e *entry, rec *driver.Record) {
	t.Helper()
	kept := &entry{id: rec.ID}
	kept.set(rec)
	var got, want driver.Record
	e.get(&got)
	kept.get(&want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
