package redisstore_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// backdate makes a record one that was written so long ago. The server does not know, and keeps it.
func backdate(t *testing.T, client rueidis.Client, s *redisstore.Store, id driver.RecordID, by time.Duration) {
	t.Helper()
	for _, part := range []string{"", ":v"} {
		text, err := command(t, client, "GETRANGE", redisstore.KeyOf(s, id)+part, "0", "7").ToString()
		noErr(t, err)
		if text == "" {
			continue // there is no result
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], binary.LittleEndian.Uint64([]byte(text))-uint64(by.Microseconds()))
		command(t, client, "SETRANGE", redisstore.KeyOf(s, id)+part, "0", string(b[:]))
	}
}

// A record whose time is over is judged by the server's TIME in each script, and not by whether the server has removed
// it yet: to the very call that finds it, it is absent (rule 13).
func TestTheEndIsJudgedAndNotTheRemoval(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	claimedLast := func(*driver.Record) error { return nil }
	completed := func(rec *driver.Record) error { _, err := s.Complete(ctx, completionOf(rec, "v")); return err }
	released := func(rec *driver.Record) error {
		_, err := s.Release(ctx, releaseOf(rec, driver.StateReleased))
		return err
	}
	is := func(want error) func(t *testing.T, err error) {
		return func(t *testing.T, err error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	}
	for name, c := range map[string]struct {
		before func(rec *driver.Record) error
		call   func(rec *driver.Record) error
		judge  func(t *testing.T, err error)
	}{
		"complete":           {claimedLast, completed, is(driver.ErrLeaseLost)},
		"complete, repeated": {completed, completed, is(driver.ErrLeaseLost)},
		"renew":              {claimedLast, func(rec *driver.Record) error { _, err := s.Renew(ctx, renewalOf(rec)); return err }, is(driver.ErrLeaseLost)},
		"save step":          {claimedLast, func(rec *driver.Record) error { _, err := s.SaveStep(ctx, stepOf(rec, "mail")); return err }, is(driver.ErrLeaseLost)},
		"release": {claimedLast, func(rec *driver.Record) error {
			res, err := s.Release(ctx, releaseOf(rec, driver.StateReleased))
			if err == nil && !res.Superseded {
				err = errors.New("not superseded")
			}
			return err
		}, is(nil)},
		"release by nonce": {released, func(rec *driver.Record) error {
			req := releaseOf(rec, driver.StateReleased)
			req.Token = 0
			if _, err := s.Release(ctx, req); err != nil {
				return err
			}
			again := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
			again.Nonce = rec.Nonce
			_, err := s.Claim(ctx, again)
			return err
		}, is(driver.ErrAttemptEnded)},
		"get": {completed, func(rec *driver.Record) error {
			got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
			if err == nil && got.Found {
				err = errors.New("found")
			}
			return err
		}, is(nil)},
		"brief get": {completed, func(rec *driver.Record) error {
			got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID, Brief: true})
			if err == nil && got.Found {
				err = errors.New("found")
			}
			return err
		}, is(nil)},
		"list": {completed, func(rec *driver.Record) error {
			page, err := s.List(ctx, driver.ListRequest{Scope: rec.Scope})
			for _, r := range page.Records {
				if r.ID == rec.ID {
					err = errors.New("listed")
				}
			}
			return err
		}, is(nil)},
		"watch": {claimedLast, func(rec *driver.Record) error {
			w, err := s.Watch(ctx, driver.WatchRequest{ID: rec.ID})
			if err != nil {
				return err
			}
			defer w.Stop()
			select {
			case <-w.Ended:
				return nil
			default:
				return errors.New("there is nothing to wait for, and yet it waits")
			}
		}, is(nil)},
		"claim of a completed key": {completed, claimsAnew(s), is(nil)},
		"claim of a running key":   {claimedLast, claimsAnew(s), is(nil)},
		"claim of a released key":  {released, claimsAnew(s), is(nil)},
		"claim to settle": {claimedLast, func(rec *driver.Record) error {
			req := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
			req.Take = driver.TakeForced
			res, err := s.Claim(ctx, req)
			if err == nil && res.Decision != driver.DecideAbsent {
				err = errors.New(res.Decision.String())
			}
			return err
		}, is(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			req := claimOf(everonce.Key{Scope: "judged", ID: name})
			req.ExpireUnsettled = true
			res, err := s.Claim(ctx, req)
			rec := decided(t, res, err, driver.DecideClaimed).Record
			noErr(t, c.before(&rec))
			backdate(t, client, s, rec.ID, life.Total())
			c.judge(t, c.call(&rec))
		})
	}
}

// claimsAnew claims a key whose record is over, as a new one.
func claimsAnew(s *redisstore.Store) func(rec *driver.Record) error {
	return func(rec *driver.Record) error {
		req := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
		req.Fingerprint = driver.Fingerprint(everonce.FingerprintOf("another"))
		res, err := s.Claim(ctx(), req)
		switch r := &res.Record; {
		case err != nil:
			return err
		case res.Decision != driver.DecideClaimed:
			return errors.New(res.Decision.String())
		case r.Attempt != 1 || r.Token <= rec.Token || r.Token < driver.Token(res.Now.UnixMicro()) || r.Previous.State != 0 || len(r.Steps) != 0:
			return errors.New("it is not a new record")
		}
		return nil
	}
}

// The retention and the lease are judged too: a result whose retention is over is not replayed, and a lease that ran
// out does not hold, whatever the server still has.
func TestRetentionAndLeaseAreJudged(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	prefix := newPrefix(t, client)
	for name, opts := range map[string]redisstore.Options{"claim": {KeyPrefix: prefix}, "read first": {KeyPrefix: prefix, ReadFirst: true}} {
		s := newStore(t, client, &opts)
		done := everonce.Key{Scope: "retention", ID: name}
		rec := claimed(t, s, done)
		_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		backdate(t, client, s, rec.ID, life.Retention)
		res, err := s.Claim(t.Context(), claimOf(done))
		if got := decided(t, res, err, driver.DecideExpired).Record.Result; len(got.Data) != 0 || string(got.Summary) != "summary" {
			t.Errorf("%s: an expired result is reported as %q with the summary %q", name, got.Data, got.Summary)
		}
		for _, brief := range []bool{false, true} {
			got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID, Brief: brief})
			if err != nil || len(got.Record.Result.Data) != 0 {
				t.Errorf("%s: an expired result is read as %q, %v", name, got.Record.Result.Data, err)
			}
		}
		running := everonce.Key{Scope: "lease", ID: name}
		rec = claimed(t, s, running)
		backdate(t, client, s, rec.ID, lease)
		res, err = s.Claim(t.Context(), claimOf(running))
		decided(t, res, err, driver.DecideAbandoned)
	}
}

// The server removes nothing before its end: the end is counted from the TIME that the script has read, to which a slow
// script, or a busy machine, may have come late.
func TestTheServerKeepsUntilTheEnd(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	until := func(id driver.RecordID, part string) time.Time {
		t.Helper()
		ms, err := command(t, client, "PEXPIRETIME", redisstore.KeyOf(s, id)+part).ToInt64()
		noErr(t, err)
		return time.UnixMilli(ms)
	}
	judge := func(what string, rec *driver.Record) {
		t.Helper()
		got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		for part, end := range map[string]time.Time{"": got.Record.PurgeAt, ":v": got.Record.ResultUntil, ":s": got.Record.PurgeAt} {
			if got.Record.State == driver.StateCompleted && part == ":s" {
				end = got.Record.ResultUntil
			}
			if end.IsZero() {
				continue
			}
			if kept := until(rec.ID, part).Sub(end); kept <= 0 || kept > 3*time.Millisecond {
				t.Errorf("%s: %q is kept for %v after its end", what, part, kept)
			}
		}
	}
	for range 20 {
		req := claimOf(everonce.Key{Scope: "kept", ID: driver.NewNonce().String()})
		req.ExpireUnsettled = true
		res, err := s.Claim(t.Context(), req)
		rec := decided(t, res, err, driver.DecideClaimed).Record
		_, err = s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		judge("a step", &rec)
		again := req
		again.Lifetime.Remember += time.Hour
		_, err = s.Claim(t.Context(), again)
		noErr(t, err)
		judge("the claim, repeated", &rec)
		_, err = s.Renew(t.Context(), renewalOf(&rec))
		noErr(t, err)
		judge("a renewal", &rec)
		quiet := stepOf(&rec, "hook")
		quiet.Lease = 0
		_, err = s.SaveStep(t.Context(), quiet)
		noErr(t, err)
		judge("a step without a renewal", &rec)
		_, err = s.Release(t.Context(), releaseOf(&rec, driver.StateReleased))
		noErr(t, err)
		judge("a release", &rec)
		req.Nonce = driver.NewNonce()
		res, err = s.Claim(t.Context(), req)
		rec = decided(t, res, err, driver.DecideClaimed).Record
		judge("a second claim", &rec)
		_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		judge("a completion", &rec)
	}
}

// A result within a second of its end is judged by the server's TIME, in a second call: the server's clock is estimated
// for those that are farther from it.
func TestNearItsEndAResultIsAskedAbout(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, nil)
	for left, want := range map[time.Duration]string{
		10 * time.Second:       "calls=1,",
		900 * time.Millisecond: "calls=2,", // be it over meanwhile
		0:                      "calls=2,",
	} {
		key := everonce.Key{Scope: "near", ID: left.String()}
		rec := claimed(t, s, key)
		_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		backdate(t, client, s, rec.ID, life.Retention-left)
		command(t, client, "CONFIG", "RESETSTAT")
		res, err := s.Claim(t.Context(), claimOf(key))
		noErr(t, err)
		if d := res.Decision; d != driver.DecideExpired && left == 0 || d != driver.DecideReplay && left > time.Second || d != driver.DecideReplay && d != driver.DecideExpired {
			t.Errorf("%v before its end the claim says %v", left, d)
		}
		text, err := command(t, client, "INFO", "commandstats").ToString()
		noErr(t, err)
		if got := redisstore.InfoOf(text)["cmdstat_evalsha"]; !strings.HasPrefix(got, want) {
			t.Errorf("%v before its end: %s, want %s", left, got, want)
		}
	}
}

// The steps of a record that is gone do not belong to the next record with its key, though no call removed them.
func TestLeftoverStepsAreNobodys(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	key := everonce.Key{Scope: "leftover", ID: "steps"}
	rec := claimed(t, s, key)
	for _, name := range []string{"mail", "hook"} {
		_, err := s.SaveStep(t.Context(), stepOf(&rec, name))
		noErr(t, err)
	}
	if n, err := command(t, client, "DEL", redisstore.KeyOf(s, rec.ID)).ToInt64(); n != 1 || err != nil {
		t.Fatalf("DEL: %d, %v", n, err)
	}
	rec = claimed(t, s, key)
	open := stepOf(&rec, "mail")
	open.Step.State, open.Step.Result = driver.StepOpen, driver.SavedResult{}
	_, err := s.SaveStep(t.Context(), open)
	noErr(t, err)
	got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	if steps := got.Record.Steps; len(steps) != 1 || steps[0].Name != "mail" || steps[0].State != driver.StepOpen {
		t.Errorf("the new record has the steps %+v", steps)
	}
}

// Nor are they reported as the new record's, alone or in the list.
func TestLeftoverStepsAreNotListed(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	key := everonce.Key{Scope: "leftover", ID: "steps"}
	rec := claimed(t, s, key)
	_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	if n, err := command(t, client, "DEL", redisstore.KeyOf(s, rec.ID)).ToInt64(); n != 1 || err != nil {
		t.Fatalf("DEL: %d, %v", n, err)
	}
	claimed(t, s, key)
	got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	if len(got.Record.Steps) != 0 {
		t.Errorf("the new record is read with the steps of another: %+v", got.Record.Steps)
	}
	page, err := s.List(t.Context(), driver.ListRequest{Steps: true})
	noErr(t, err)
	if len(page.Records) != 1 || len(page.Records[0].Steps) != 0 {
		t.Errorf("the new record is listed with the steps of another: %+v", page.Records)
	}
}

// A claim to settle that finds a result near its end, and then finds the record gone, returns no record.
func TestAbsentIsNoRecord(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	rec := claimed(t, s, testKey)
	_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	backdate(t, client, s, rec.ID, life.Total())
	req := claimOf(testKey)
	req.Take = driver.TakeForced
	res, err := s.Claim(t.Context(), req)
	if got := decided(t, res, err, driver.DecideAbsent).Record; got.State != 0 || got.ID != (driver.RecordID{}) || len(got.Result.Data) != 0 {
		t.Errorf("the absent record is %v, with the result %q", got.State, got.Result.Data)
	}
}

// A claim that is asked again, because it found a result near its end, is the same claim: the record that it begins has
// the end that it was to have.
func TestAClaimThatIsAskedAgainIsTheSame(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	for expire, want := range map[bool]time.Duration{true: life.Total(), false: never} {
		rec := claimed(t, s, everonce.Key{Scope: "again", ID: strconv.FormatBool(expire)})
		_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		backdate(t, client, s, rec.ID, life.Total()) // the server has it still
		req := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
		req.ExpireUnsettled = expire
		res, err := s.Claim(t.Context(), req)
		decided(t, res, err, driver.DecideClaimed)
		parts := ends(t, client, s, req.ID)
		if got := parts[0]; want < 0 && got != want || want > 0 && (got > want+time.Second || got < want-time.Minute) {
			t.Errorf("to expire %v: the server keeps the claimed record for %v, want %v", expire, got, want)
		}
		if parts[1] != nought || parts[2] != nought {
			t.Errorf("the result before, and its steps, are kept for %v and %v beside the new record", parts[1], parts[2])
		}
		res, err = s.Claim(t.Context(), claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name}))
		decided(t, res, err, driver.DecideInProgress)
	}
}
