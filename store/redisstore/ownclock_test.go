package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// This process's clock is years behind the server's, and stands still: what a lease, and a lifetime, is measured by is the server's (rule 2).
func TestTimeIsTheServers(t *testing.T) {
	url := serverURL(t)
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, url)
		s := newStore(t, client, nil)
		server := func() time.Time {
			t.Helper()
			parts, err := command(t, client, "TIME").AsIntSlice()
			noErr(t, err)
			return time.UnixMicro(parts[0]*1_000_000 + parts[1])
		}
		between := func(what string, got, before time.Time) {
			t.Helper()
			if after := server(); got.Before(before) || got.After(after) {
				t.Errorf("%s is %v, want a time of the server's from %v to %v", what, got, before, after)
			}
		}
		const brief = 20 * time.Millisecond
		ctx := t.Context()
		req := claimOf(testKey)
		req.Lease = brief
		before := server()
		if time.Since(before) > -365*24*time.Hour {
			t.Fatalf("this process has the server's time, %v", before)
		}
		res, err := s.Claim(ctx, req)
		noErr(t, err)
		rec := res.Record
		for what, at := range map[string]time.Time{"Now": res.Now, "ClaimedAt": rec.ClaimedAt, "the lease's beginning": rec.LeaseUntil.Add(-brief)} {
			between(what, at, before)
		}
		for other := claimOf(testKey); res.Decision != everonce.DecideAbandoned; { // by when the server says so
			res, err = s.Claim(ctx, other)
			noErr(t, err)
			if lapsed := !res.Now.Before(rec.LeaseUntil); lapsed != (res.Decision == everonce.DecideAbandoned) {
				t.Fatalf("%v of a lease until %v at %v", res.Decision, rec.LeaseUntil, res.Now)
			}
		}
		before = server()
		_, err = s.Renew(ctx, renewalOf(&rec))
		noErr(t, err)
		_, err = s.SaveStep(ctx, stepOf(&rec, "mail"))
		noErr(t, err)
		got, err := s.Get(ctx, everonce.GetRequest{ID: rec.ID})
		noErr(t, err)
		for what, at := range map[string]time.Time{"Now": got.Now, "UpdatedAt": got.Record.UpdatedAt, "the step's beginning": got.Record.Steps[0].BeganAt} {
			between(what, at, before)
		}
		done := completionOf(&rec, "v")
		done.Lifetime = everonce.Lifetime{Retention: brief, Remember: time.Hour}
		_, err = s.Complete(ctx, done)
		noErr(t, err)
		for res.Decision != everonce.DecideExpired {
			res, err = s.Claim(ctx, claimOf(testKey))
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
		if len(list.Records) != 1 || health.Completed != 1 {
			t.Errorf("%d records are listed as expired, %d counted as done", len(list.Records), health.Completed)
		}
	})
}
