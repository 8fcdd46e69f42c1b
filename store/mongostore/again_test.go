package mongostore_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// secondClaim claims a key whose first attempt ended in a step of unknown outcome; some time has passed since that
// attempt.
func secondClaim(t *testing.T, s *mongostore.Store, id string) (claim driver.ClaimRequest, rec driver.Record) {
	t.Helper()
	ctx := t.Context()
	key := everonce.Key{Scope: "orders", ID: id}
	claim = driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour + time.Microsecond,
		Lifetime: driver.Lifetime{Retention: time.Hour, Remember: time.Hour}, ExpireUnsettled: true, Take: driver.TakeToSettle,
	}
	first := claim
	first.Take = driver.TakeNone
	res, err := s.Claim(ctx, first)
	noErr(t, err)
	passes(t, s, res.Now)
	_, err = s.Release(ctx, driver.ReleaseRequest{ID: claim.ID, Token: res.Record.Token, Nonce: first.Nonce, State: driver.StateAbandoned, Step: "mail", Lifetime: claim.Lifetime, ExpireUnsettled: true})
	noErr(t, err)
	claim.Nonce = driver.NewNonce()
	res, err = s.Claim(ctx, claim)
	noErr(t, err)
	if res.Decision != driver.DecideClaimed || res.Record.UnknownStep != "mail" {
		t.Fatalf("%v, with the step %q unknown", res.Decision, res.Record.UnknownStep)
	}
	passes(t, s, res.Now)
	return claim, res.Record
}

// passes waits until the server's clock is beyond a time.
func passes(t *testing.T, s *mongostore.Store, at time.Time) {
	t.Helper()
	for now := at; !now.After(at); {
		got, err := s.Get(t.Context(), driver.GetRequest{})
		noErr(t, err)
		now = got.Now
	}
}

// The times that end or renew a second attempt run from that write, and by its own lifetime, rounded up. They do not
// run from the claim, which has written the whole record.
func TestTheTimesOfASecondAttemptCountFromItsLastWrite(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	const more = time.Microsecond // is stored as a millisecond
	life := driver.Lifetime{Retention: 3*time.Hour + more, Remember: 2 * time.Hour}
	for what, write := range map[string]func(rec driver.Record) error{
		"claimed": func(driver.Record) error { return nil },
		"renewed": func(rec driver.Record) error {
			_, err := s.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: 2*time.Hour + more, Lifetime: life})
			return err
		},
		"stepped": func(rec driver.Record) error {
			_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: 2*time.Hour + more, Lifetime: life, Step: driver.StepRecord{Name: "hook", State: driver.StepOpen, Attempt: 2}})
			return err
		},
		"released by nonce": func(rec driver.Record) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: life, ExpireUnsettled: true})
			return err
		},
		"released": func(rec driver.Record) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: life})
			return err
		},
		"completed": func(rec driver.Record) error {
			done := completed(driver.ClaimResult{Record: rec})
			done.Lifetime = life
			_, err := s.Complete(ctx, done)
			return err
		},
	} {
		claim, rec := secondClaim(t, s, what)
		noErr(t, write(rec))
		got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		after := got.Record
		kept, lease, unknown := 5*time.Hour+time.Millisecond, time.Duration(0), ""
		switch what {
		case "claimed":
			kept, lease, unknown = claim.Lifetime.Total(), time.Hour+time.Millisecond, "mail"
		case "renewed", "stepped":
			lease, unknown = 2*time.Hour+time.Millisecond, "mail"
		case "released by nonce": // what the claim found is not settled
			unknown = "mail"
		}
		if d := after.PurgeAt.Sub(after.UpdatedAt); d != kept {
			t.Errorf("%s: it is kept for %v, want %v", what, d, kept)
		}
		if what != "claimed" && !after.UpdatedAt.After(rec.UpdatedAt) {
			t.Errorf("%s: its last write was at %v, want a time after the claim's, %v", what, after.UpdatedAt, rec.UpdatedAt)
		}
		if lease != 0 && after.LeaseUntil.Sub(after.UpdatedAt) != lease {
			t.Errorf("%s: the lease is %v, want %v", what, after.LeaseUntil.Sub(after.UpdatedAt), lease)
		}
		if what == "completed" && after.ResultUntil.Sub(after.CompletedAt) != 3*time.Hour+time.Millisecond {
			t.Errorf("%s: the result is kept for %v, want %v", what, after.ResultUntil.Sub(after.CompletedAt), 3*time.Hour+time.Millisecond)
		}
		if after.UnknownStep != unknown {
			t.Errorf("%s: the unknown step is %q, want %q", what, after.UnknownStep, unknown)
		}
	}
}

// The server judges by the latest write, and not by the first: a record that was begun long ago is neither over nor
// without a lease.
func TestTheServerJudgesByTheLatestWrite(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	scope := driver.ScopeOf("tenant")
	for _, id := range []string{"claimed", "completed"} {
		key := everonce.Key{Scope: scope, ID: id}
		res, err := s.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: scope, Name: id, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb(), ExpireUnsettled: true})
		noErr(t, err)
		if id == "claimed" {
			_, err = s.Renew(ctx, driver.RenewRequest{ID: key.RecordID(), Token: res.Record.Token, Nonce: res.Record.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb()})
		} else {
			_, err = s.Complete(ctx, completed(res))
		}
		noErr(t, err)
	}
	ago := time.Now().Add(-1000 * time.Hour)
	_, err = db.Collection(name).UpdateMany(ctx, bson.D{{Key: "sc", Value: string(scope)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "c", Value: ago}, {Key: "pd", Value: ago}}}})
	noErr(t, err)
	if res, err := s.Purge(ctx, driver.PurgeRequest{}); err != nil || res != (driver.PurgeResult{}) {
		t.Errorf("purged: %+v, %v; want nothing", res, err)
	}
	if h, err := s.Health(ctx, driver.HealthRequest{}); err != nil || h.Claimed != 1 || h.Completed != 1 {
		t.Errorf("%+v, %v; want one that is claimed, and one that is completed", h, err)
	}
	if res, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: scope}); err != nil || res.Records != 1 {
		t.Errorf("deleted %+v, %v; want the one that is completed", res, err)
	}
}

// An attempt has its nonce and its token, to the millisecond: with another's token nothing is written.
func TestAnotherTokenHoldsNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "first"}
	res, err := s.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	_, second := secondClaim(t, s, "second")
	for what, rec := range map[string]driver.Record{"first": res.Record, "second": second} {
		for _, token := range []driver.Token{rec.Token - 1000, rec.Token + 1000, rec.Token + 1, driver.Token(rec.CreatedAt.UnixMicro())} {
			if token == rec.Token {
				continue
			}
			other := rec
			other.Token = token
			if _, err := s.Complete(ctx, completed(driver.ClaimResult{Record: other})); !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("the %s attempt, with the token %+d: %v, want ErrLeaseLost", what, token-rec.Token, err)
			}
		}
		if _, err := s.Complete(ctx, completed(driver.ClaimResult{Record: rec})); err != nil {
			t.Errorf("the %s attempt: %v", what, err)
		}
	}
}
