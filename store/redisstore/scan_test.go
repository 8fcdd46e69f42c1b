package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// fill claims n keys of a scope.
func fill(t *testing.T, client rueidis.Client, s *redisstore.Store, scope driver.Scope, n int) {
	t.Helper()
	template := claimed(t, s, everonce.Key{Scope: scope, ID: "template"})
	text, err := command(t, client, "GETDEL", redisstore.KeyOf(s, template.ID)).ToString()
	noErr(t, err)
	sets := make(rueidis.Commands, n)
	for i := range sets {
		id := everonce.Key{Scope: scope, ID: strconv.Itoa(i)}.RecordID()
		sets[i] = client.B().Set().Key(redisstore.KeyOf(s, id)).Value(text).Build()
	}
	for _, res := range client.DoMulti(t.Context(), sets...) {
		noErr(t, res.Error())
	}
}

// A tenant is forgotten where the client has but one connection to wait by, which a scan must not keep from the writes;
// and whatever stays of the tenant, each call goes past it.
func TestDeleteScopeOnOneConnection(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, master)
	opt := master.option()
	opt.BlockingPoolSize = 1
	client := dial(t, opt)
	s := newStore(t, client, &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute})
	const live, ended = 40, 60
	for i := range live + ended {
		rec := claimed(t, s, everonce.Key{Scope: "tenant", ID: strconv.Itoa(i)})
		if i >= live {
			_, err := s.Release(t.Context(), releaseOf(&rec, driver.StateAbandoned))
			noErr(t, err)
		}
	}
	for deleted := 0; ; {
		res, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: "tenant", Limit: 7})
		noErr(t, err)
		deleted += res.Records
		if res.More {
			if res.Records != 7 {
				t.Fatalf("a call of 7 that leaves more: %+v", res)
			}
			continue
		}
		if deleted != ended || !res.Live {
			t.Errorf("%d records are deleted, want %d; a live claim is reported: %v", deleted, ended, res.Live)
		}
		return
	}
}

// The place of a scan means nothing to a server that was started anew: it would pass over records in silence. So that
// is a failure.
func TestAScanOverTwoServersIsAFailure(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	fill(t, client, s, "tenant", 3000)
	steps := 0
	err := redisstore.Scan(t.Context(), s, func() {
		if steps++; steps > 1 {
			return
		}
		p.kill(t)
		if !p.start(t) {
			t.Error("the server does not start")
		}
	})
	if err == nil || steps != 1 {
		t.Errorf("%d steps, %v", steps, err)
	}
	noErr(t, redisstore.Scan(t.Context(), s, func() {}))
}
