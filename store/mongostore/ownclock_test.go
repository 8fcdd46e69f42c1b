package mongostore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mongostore"
)

// This process's clock is years behind the server's, and stands still: what a lease, and a lifetime, is measured by is the server's (rule 2).
func TestTimeIsTheServers(t *testing.T) {
	url, name := serverURL(t), newCollection(t)
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, url, nil)
		s, err := mongostore.New(t.Context(), client.Database(dbName), &mongostore.Options{Collection: name})
		noErr(t, err)
		server := func() time.Time {
			t.Helper()
			var told struct {
				Time time.Time `bson:"localTime"`
			}
			noErr(t, client.Database(dbName).RunCommand(t.Context(), bson.D{{Key: "isMaster", Value: 1}}).Decode(&told))
			return told.Time
		}
		between := func(what string, got, before time.Time) {
			t.Helper()
			if after := server(); got.Before(before) || got.After(after) {
				t.Errorf("%s is %v, want a time of the server's from %v to %v", what, got, before, after)
			}
		}
		before := server()
		if time.Since(before) > -365*24*time.Hour {
			t.Fatalf("this process has the server's time, %v", before)
		}
		const brief = 20 * time.Millisecond
		ctx := t.Context()
		key := everonce.Key{Scope: "clock", ID: "x"}
		claim := func() everonce.ClaimRequest {
			return everonce.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: everonce.NewNonce(), Lease: brief, Lifetime: everonce.ForWeb()}
		}
		res, err := s.Claim(ctx, claim())
		noErr(t, err)
		rec := res.Record
		for what, at := range map[string]time.Time{"Now": res.Now, "ClaimedAt": rec.ClaimedAt, "the lease's beginning": rec.LeaseUntil.Add(-brief)} {
			between(what, at, before)
		}
		for other := claim(); res.Decision != everonce.DecideAbandoned; { // by when the server says so
			res, err = s.Claim(ctx, other)
			noErr(t, err)
			if lapsed := !res.Now.Before(rec.LeaseUntil); lapsed != (res.Decision == everonce.DecideAbandoned) {
				t.Fatalf("%v of a lease until %v at %v", res.Decision, rec.LeaseUntil, res.Now)
			}
		}
		before = server()
		_, err = s.Renew(ctx, everonce.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		_, err = s.SaveStep(ctx, everonce.SaveStepRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb(),
			Step: everonce.StepRecord{Name: "mail", State: everonce.StepOpen, Attempt: 1},
		})
		noErr(t, err)
		got, err := s.Get(ctx, everonce.GetRequest{ID: rec.ID})
		noErr(t, err)
		for what, at := range map[string]time.Time{"Now": got.Now, "UpdatedAt": got.Record.UpdatedAt, "the step's beginning": got.Record.Steps[0].BeganAt} {
			between(what, at, before)
		}
		_, err = s.Complete(ctx, everonce.CompleteRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: everonce.Lifetime{Retention: brief, Remember: time.Hour},
			Result: everonce.SavedResult{Kind: everonce.ResultValue, Codec: "raw", Data: []byte("v")},
		})
		noErr(t, err)
		for res.Decision != everonce.DecideExpired {
			res, err = s.Claim(ctx, claim())
			noErr(t, err)
			if over := !res.Now.Before(res.Record.ResultUntil); over != (res.Decision == everonce.DecideExpired) {
				t.Fatalf("%v of a result until %v at %v", res.Decision, res.Record.ResultUntil, res.Now)
			}
		}
		list, err := s.List(ctx, everonce.ListRequest{States: []everonce.State{everonce.StateTombstone}})
		noErr(t, err)
		health, err := s.Health(ctx)
		noErr(t, err)
		between("the time of List", list.Now, before)
		between("the time of Health", health.Now, before)
		purged, err := s.Purge(ctx, everonce.PurgeRequest{})
		noErr(t, err)
		if len(list.Records) != 1 || health.Completed != 1 || purged.Results != 1 || purged.Records != 0 {
			t.Errorf("%d records are listed as expired, %d counted as done; purged: %+v", len(list.Records), health.Completed, purged)
		}
	})
}
