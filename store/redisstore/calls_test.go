package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

const lease = time.Minute

var (
	testKey = everonce.Key{Scope: "tenant/charge", ID: "order-7"}
	life    = driver.Lifetime{Retention: time.Hour, Remember: time.Hour}
)

func newStore(t testing.TB, client rueidis.Client, opts *redisstore.Options) *redisstore.Store {
	t.Helper()
	if opts == nil {
		opts = &redisstore.Options{KeyPrefix: newPrefix(t, client)}
	}
	s, err := redisstore.New(t.Context(), client, opts)
	noErr(t, err)
	return s
}

func claimOf(key everonce.Key) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test", Lease: lease,
		Fingerprint: driver.Fingerprint(everonce.FingerprintOf("a")), Lifetime: life,
	}
}

func decided(t testing.TB, res driver.ClaimResult, err error, want driver.Decision) driver.ClaimResult {
	t.Helper()
	if err != nil || res.Decision != want {
		t.Fatalf("the claim says %v, %v; want %v", res.Decision, err, want)
	}
	return res
}

func claimed(t testing.TB, s driver.Store, key everonce.Key) driver.Record {
	t.Helper()
	res, err := s.Claim(t.Context(), claimOf(key))
	return decided(t, res, err, driver.DecideClaimed).Record
}

func completionOf(rec *driver.Record, value string) driver.CompleteRequest {
	return driver.CompleteRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life,
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte(value), Summary: []byte("summary")},
	}
}

func releaseOf(rec *driver.Record, state driver.State) driver.ReleaseRequest {
	return driver.ReleaseRequest{
		ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Token: rec.Token, Nonce: rec.Nonce, State: state, ErrorClass: "error", Lifetime: life,
	}
}

func renewalOf(rec *driver.Record) driver.RenewRequest {
	return driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life}
}

func stepOf(rec *driver.Record, name string) driver.SaveStepRequest {
	return driver.SaveStepRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life,
		Step: driver.StepRecord{Name: name, State: driver.StepDone, Attempt: rec.Attempt, Result: driver.SavedResult{Kind: driver.ResultElided}},
	}
}

// everyCall calls what a store has, and returns the errors by name.
func everyCall(ctx context.Context, s *redisstore.Store, rec *driver.Record) map[string]error {
	errs := make(map[string]error)
	_, errs["Claim"] = s.Claim(ctx, claimOf(everonce.Key{Scope: rec.Scope, ID: "another"}))
	_, errs["Claim of a known key"] = s.Claim(ctx, claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name}))
	_, errs["Renew"] = s.Renew(ctx, renewalOf(rec))
	_, errs["SaveStep"] = s.SaveStep(ctx, stepOf(rec, "mail"))
	_, errs["Complete"] = s.Complete(ctx, completionOf(rec, "v"))
	_, errs["Release"] = s.Release(ctx, releaseOf(rec, driver.StateReleased))
	_, errs["Get"] = s.Get(ctx, driver.GetRequest{ID: rec.ID})
	_, errs["List"] = s.List(ctx, driver.ListRequest{})
	_, errs["DeleteScope"] = s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: rec.Scope})
	_, errs["Health"] = s.Health(ctx, driver.HealthRequest{})
	_, errs["KeepIdentity"] = s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}})
	_, errs["ReadIdentity"] = s.ReadIdentity(ctx, driver.ReadIdentityRequest{})
	w, err := s.Watch(ctx, driver.WatchRequest{ID: rec.ID})
	if errs["Watch"] = err; err == nil {
		w.Stop()
	}
	return errs
}

// refusals are the errors that say more than that the outcome is unknown.
var refusals = []error{
	driver.ErrAttemptEnded, driver.ErrLeaseLost, driver.ErrConflict, driver.ErrTooLarge, driver.ErrNewerRecord,
	driver.ErrIdentity, driver.ErrSchema,
}

// failures checks that calls failed, and that no failure looks like an answer (rule 7).
func failures(t testing.TB, errs map[string]error, names ...string) {
	t.Helper()
	for _, name := range names {
		err := errs[name]
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		for _, refusal := range refusals {
			if errors.Is(err, refusal) {
				t.Errorf("%s: %v, which is an answer", name, err)
			}
		}
	}
}

// ctx is for helpers that are given no test.
func ctx() context.Context { return context.Background() }
