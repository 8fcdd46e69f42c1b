package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/netcut"
	"github.com/everonce/everonce/store/redisstore"
)

// line is a connection to the server that a test can cut.
type line struct{ netcut.Line }

func (l *line) option(p *process) rueidis.ClientOption {
	opt := p.option()
	opt.Dialer = net.Dialer{KeepAlive: -1}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return l.Over(conn), nil
	}
	return opt
}

// warmUp lets the server know the scripts. Nothing is watched: a subscription is renewed automatically after a cut.
func warmUp(t *testing.T, s *redisstore.Store) {
	t.Helper()
	key := everonce.Key{Scope: "warm", ID: "up"}
	rec := claimed(t, s, key)
	_, err := s.Renew(t.Context(), renewalOf(&rec))
	noErr(t, err)
	_, err = s.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	_, err = s.Release(t.Context(), releaseOf(&rec, driver.StateReleased))
	noErr(t, err)
	rec = claimed(t, s, key)
	_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	_, err = s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
	noErr(t, err)
}

// The answer of every write is lost, or the write itself: the store says that it does not know, and the same call again
// is accepted and leaves what one call leaves (rule 4).
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	for name, how := range map[string]netcut.Cut{"before": netcut.Before, "after": netcut.After} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l line
			s := newStore(t, dial(t, l.option(p)), &redisstore.Options{KeyPrefix: name + ":"})
			ctx := t.Context()
			warmUp(t, s)
			lost := func(what string, call func() error) {
				t.Helper()
				l.Cut(how)
				failures(t, map[string]error{what: call()}, what)
				noErr(t, call())
			}
			req := claimOf(testKey)
			var res driver.ClaimResult
			lost("Claim", func() (err error) { res, err = s.Claim(ctx, req); return err })
			rec := decided(t, res, nil, driver.DecideClaimed).Record
			if rec.Attempt != 1 || rec.Nonce != req.Nonce {
				t.Errorf("the repeated claim is attempt %d", rec.Attempt)
			}
			lost("Renew", func() error { _, err := s.Renew(ctx, renewalOf(&rec)); return err })
			lost("SaveStep", func() error { _, err := s.SaveStep(ctx, stepOf(&rec, "mail")); return err })
			lost("Release", func() error { _, err := s.Release(ctx, releaseOf(&rec, driver.StateReleased)); return err })
			if _, err := s.Claim(ctx, req); !errors.Is(err, driver.ErrAttemptEnded) {
				t.Errorf("the claim of an attempt that has ended: %v", err)
			}
			rec = claimed(t, s, testKey)
			if rec.Attempt != 2 || len(rec.Steps) != 1 {
				t.Errorf("the next attempt is number %d with %d steps", rec.Attempt, len(rec.Steps))
			}
			lost("Complete", func() error { _, err := s.Complete(ctx, completionOf(&rec, "v")); return err })
			lost("Get", func() error {
				got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
				if err == nil && string(got.Record.Result.Data) != "v" {
					t.Errorf("read %q", got.Record.Result.Data)
				}
				return err
			})
		})
	}
}

// A server that was told to forget its scripts, or never knew them, gets their text once.
func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	s := newStore(t, client, &redisstore.Options{})
	for _, id := range []string{"1", "2"} {
		key := everonce.Key{Scope: "scripts", ID: id}
		command(t, client, "SCRIPT", "FLUSH")
		rec := claimed(t, s, key)
		command(t, client, "SCRIPT", "FLUSH")
		_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		command(t, client, "SCRIPT", "FLUSH")
		got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		if err != nil || got.Record.State != driver.StateCompleted {
			t.Errorf("%v, %v", got.Record.State, err)
		}
	}
}

// A server without room refuses new keys and says so; what runs can end, and what is known is answered.
func TestFullServer(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	s := newStore(t, client, &redisstore.Options{})
	ctx := t.Context()
	done := claimed(t, s, everonce.Key{Scope: "full", ID: "done"})
	_, err := s.Complete(ctx, completionOf(&done, "v"))
	noErr(t, err)
	for i, end := range []func(rec *driver.Record) error{
		func(rec *driver.Record) error { _, err := s.Complete(ctx, completionOf(rec, "v")); return err },
		func(rec *driver.Record) error {
			_, err := s.Release(ctx, releaseOf(rec, driver.StateReleased))
			return err
		},
		func(rec *driver.Record) error { _, err := s.Renew(ctx, renewalOf(rec)); return err },
		func(rec *driver.Record) error { _, err := s.SaveStep(ctx, stepOf(rec, "mail")); return err },
	} {
		key := everonce.Key{Scope: "full", ID: string(rune('a' + i))}
		command(t, client, "CONFIG", "SET", "maxmemory", "0")
		rec := claimed(t, s, key)
		command(t, client, "CONFIG", "SET", "maxmemory", "1")
		noErr(t, end(&rec))
		if _, err := s.Claim(ctx, claimOf(everonce.Key{Scope: "full", ID: key.ID + " new"})); !errors.Is(err, driver.ErrStoreFull) {
			t.Errorf("a new key: %v, want ErrStoreFull", err)
		}
		if _, err := s.CheckWrite(ctx, driver.CheckWriteRequest{}); !errors.Is(err, driver.ErrStoreFull) {
			t.Errorf("CheckWrite: %v, want ErrStoreFull", err)
		}
		got, err := s.Get(ctx, driver.GetRequest{ID: done.ID})
		if err != nil || string(got.Record.Result.Data) != "v" {
			t.Errorf("a known key: %q, %v", got.Record.Result.Data, err)
		}
	}
}

// A value that is not a record is reported as such, and never as absent.
func TestCorruptRecords(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	prefix := newPrefix(t, client)
	s := newStore(t, client, &redisstore.Options{KeyPrefix: prefix})
	ctx := t.Context()
	for name, spoil := range map[string]func(key string){
		"another type": func(key string) {
			command(t, client, "DEL", key)
			command(t, client, "RPUSH", key, "x")
		},
		"too short": func(key string) { command(t, client, "SET", key, "short") },
		"empty":     func(key string) { command(t, client, "SET", key, "") },
		"cut": func(key string) {
			text, err := command(t, client, "GETRANGE", key, "0", "140").ToString()
			noErr(t, err)
			command(t, client, "SET", key, text)
		},
		"no state":     func(key string) { command(t, client, "SETRANGE", key, "33", "\x09") },
		"no result":    func(key string) { command(t, client, "SETRANGE", key, "33", "\x04") },
		"a texts' end": func(key string) { command(t, client, "SETRANGE", key, "127", "\xff\xff") },
	} {
		t.Run(name, func(t *testing.T) {
			rec := claimed(t, s, everonce.Key{Scope: "corrupt", ID: name})
			spoil(redisstore.KeyOf(s, rec.ID))
			for what, call := range map[string]func() error{
				"Get":   func() error { _, err := s.Get(ctx, driver.GetRequest{ID: rec.ID}); return err },
				"Claim": func() error { _, err := s.Claim(ctx, claimOf(everonce.Key{Scope: "corrupt", ID: name})); return err },
			} {
				if err := call(); !errors.Is(err, driver.ErrCorruptRecord) {
					t.Errorf("%s: %v, want ErrCorruptRecord", what, err)
				}
			}
		})
	}
}

// A saved result that is of no completed record is corrupt, and no answer.
func TestAResultOfAnotherStateIsCorrupt(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, &redisstore.Options{KeyPrefix: newPrefix(t, client)})
	rec := claimed(t, s, testKey)
	_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	saved := redisstore.KeyOf(s, rec.ID) + ":v"
	command(t, client, "SETRANGE", saved, "33", string([]byte{byte(driver.StateReleased), 0})) // without the kind of a result
	if _, err := s.Claim(t.Context(), claimOf(testKey)); !errors.Is(err, driver.ErrCorruptRecord) {
		t.Errorf("%v, want ErrCorruptRecord", err)
	}
}

// Every call that would judge a newer version's record refuses it, and leaves it unchanged.
func TestNewerRecords(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	rec := claimed(t, s, testKey)
	key := redisstore.KeyOf(s, rec.ID)
	command(t, client, "SETRANGE", key, "32", "\x02")
	before, err := command(t, client, "GET", key).ToString()
	noErr(t, err)
	_, errClaim := s.Claim(ctx, claimOf(testKey))
	_, errComplete := s.Complete(ctx, completionOf(&rec, "v"))
	_, errRelease := s.Release(ctx, releaseOf(&rec, driver.StateReleased))
	_, errRenew := s.Renew(ctx, renewalOf(&rec))
	_, errStep := s.SaveStep(ctx, stepOf(&rec, "mail"))
	for what, err := range map[string]error{"Claim": errClaim, "Complete": errComplete, "Release": errRelease, "Renew": errRenew, "SaveStep": errStep} {
		if !errors.Is(err, driver.ErrNewerRecord) {
			t.Errorf("%s: %v, want ErrNewerRecord", what, err)
		}
	}
	got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
	if err != nil || !got.Found || got.Record.Format != 2 {
		t.Errorf("Get: %+v, %v", got, err)
	}
	deleted, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: testKey.Scope})
	if !errors.Is(err, driver.ErrNewerRecord) || deleted.Records != 0 {
		t.Errorf("DeleteScope: %+v, %v", deleted, err)
	}
	after, err := command(t, client, "GET", key).ToString()
	if err != nil || after != before {
		t.Errorf("the record was changed, %v", err)
	}
	if n := redisstore.FormatByte(); n != driver.FormatVersion {
		t.Errorf("the scripts know format %d, the package %d", n, driver.FormatVersion)
	}
}

// The list contains the record, and does not fail for the parts that this version cannot read.
func TestNewerRecordsAreListed(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	rec := claimed(t, s, testKey)
	_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	key := redisstore.KeyOf(s, rec.ID)
	command(t, client, "SETRANGE", key, "32", "\x02")
	command(t, client, "HSET", key+":s", "mail", "newer")
	page, err := s.List(t.Context(), driver.ListRequest{Steps: true})
	if err != nil || len(page.Records) != 1 || page.Records[0].Format != 2 {
		t.Errorf("%+v, %v", page.Records, err)
	}
}

// A server that hangs, is missing, or refuses the login is a failure of the store, and within the context's time.
func TestServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	s := newStore(t, p.client(t), &redisstore.Options{})
	rec := claimed(t, s, testKey)
	all := []string{
		"Claim", "Claim of a known key", "Renew", "SaveStep", "Complete", "Release", "Get", "List", "DeleteScope", "Health", "KeepIdentity",
		"ReadIdentity", "Watch",
	}
	noErr(t, p.pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	failures(t, everyCall(ctx, s, &rec), all...)
	cancel()
	noErr(t, p.skipFailed())
	_, err := s.Renew(t.Context(), renewalOf(&rec))
	noErr(t, err)
	command(t, p.client(t), "CONFIG", "SET", "requirepass", "secret")
	p.kill(t)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failures(t, everyCall(ctx, s, &rec), all...)
}
