package redisstore_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/netcut"
	"github.com/everonce/everonce/store/redisstore"
)

// turns counts round trips to the server.
type turns struct{ netcut.Turns }

func (c *turns) option(t testing.TB) rueidis.ClientOption {
	t.Helper()
	opt, err := rueidis.ParseURL(serverURL(t))
	noErr(t, err)
	opt.PipelineMultiplex = -1             // one connection
	opt.Dialer = net.Dialer{KeepAlive: -1} // no keep-alive packets beside the client's
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return c.Over(conn), nil
	}
	return opt
}

// TestRoundTrips counts what every call costs, once the server knows the scripts. The reference has this table.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	var c turns
	client := dial(t, c.option(t))
	prefix := newPrefix(t, client)
	s := newStore(t, client, &redisstore.Options{KeyPrefix: prefix})
	first := newStore(t, client, &redisstore.Options{KeyPrefix: prefix, ReadFirst: true})
	ctx := t.Context()
	for round, id := range []string{"warm-up", "counted"} {
		count := func(what string, want int64, fn func() error) {
			t.Helper()
			if round == 0 {
				noErr(t, fn())
				return
			}
			c.Of(t, what, want, fn)
		}
		claim := func(what string, s *redisstore.Store, key everonce.Key, trips int64, take driver.TakeOver, want driver.Decision) driver.Record {
			t.Helper()
			var res driver.ClaimResult
			count(what, trips, func() (err error) {
				req := claimOf(key)
				req.Take = take
				res, err = s.Claim(ctx, req)
				return err
			})
			return decided(t, res, nil, want).Record
		}
		key := everonce.Key{Scope: "guarded", ID: id}
		rec := claim("claim of a new key", s, key, 1, driver.TakeNone, driver.DecideClaimed)
		claim("claim of a running one", s, key, 1, driver.TakeNone, driver.DecideInProgress)
		count("renew", 1, func() error { _, err := s.Renew(ctx, renewalOf(&rec)); return err })
		count("save step", 1, func() error { _, err := s.SaveStep(ctx, stepOf(&rec, "mail")); return err })
		count("release", 1, func() error { _, err := s.Release(ctx, releaseOf(&rec, driver.StateReleased)); return err })
		rec = claim("claim after a release", s, key, 1, driver.TakeNone, driver.DecideClaimed)
		_, err := s.Release(ctx, releaseOf(&rec, driver.StateAbandoned))
		noErr(t, err)
		rec = claim("claim that takes over", s, key, 1, driver.TakeAbandoned, driver.DecideClaimed)
		count("get, with steps", 1, func() error { _, err := s.Get(ctx, driver.GetRequest{ID: rec.ID}); return err })
		count("complete", 1, func() error { _, err := s.Complete(ctx, completionOf(&rec, "v")); return err })
		claim("replay", s, key, 1, driver.TakeNone, driver.DecideReplay)
		claim("replay, read first", first, key, 1, driver.TakeNone, driver.DecideReplay)
		claim("claim of a new key, read first", first, everonce.Key{Scope: "first", ID: id}, 2, driver.TakeNone, driver.DecideClaimed)
		count("get of a result, brief", 1, func() error { _, err := s.Get(ctx, driver.GetRequest{ID: rec.ID, Brief: true}); return err })
		count("purge", 0, func() error { _, err := s.Purge(ctx, driver.PurgeRequest{Limit: 1}); return err })
	}
}

// The work of an operation costs two calls of the server, and each is one script; a replay one.
func TestScriptsPerOperation(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	wantCalls(t, client, s, "new key", "evalsha", "calls=2,")
	wantCalls(t, client, s, "replay", "evalsha", "calls=1,")

	// One that reads first knows the server's time from its beginning, so its first replay is a plain read already.
	first := newStore(t, client, &redisstore.Options{ReadFirst: true})
	wantCalls(t, client, first, "replay, read first", "get", "calls=1,")
	wantCalls(t, client, first, "replay, read first", "evalsha", "")
}

// wantCalls delivers an operation, and compares how often the server has got a command of that delivery's.
func wantCalls(t *testing.T, client rueidis.Client, s *redisstore.Store, what, cmd, want string) {
	t.Helper()
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	noErr(t, r.Ready(t.Context()))
	command(t, client, "CONFIG", "RESETSTAT")
	_, err = everonce.Do(t.Context(), r, testKey, func(context.Context, *everonce.Attempt) (string, error) { return "v", nil })
	noErr(t, err)
	text, err := command(t, client, "INFO", "commandstats").ToString()
	noErr(t, err)
	if got := redisstore.InfoOf(text)["cmdstat_"+cmd]; !strings.HasPrefix(got, want) || want == "" && got != "" {
		t.Errorf("%s: %s %q, want %q", what, cmd, got, want)
	}
}
