package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// ends are how long the server keeps the parts of a record: -1 is without end, -2 is missing.
func ends(t *testing.T, client rueidis.Client, s *redisstore.Store, id driver.RecordID) (parts [3]time.Duration) {
	t.Helper()
	for i, part := range []string{"", ":v", ":s"} {
		ms, err := command(t, client, "PTTL", redisstore.KeyOf(s, id)+part).ToInt64()
		noErr(t, err)
		if parts[i] = time.Duration(ms) * time.Millisecond; ms < 0 {
			parts[i] = time.Duration(ms)
		}
	}
	return parts
}

const (
	never  = time.Duration(-1)
	nought = time.Duration(-2)
)

// An unsettled record has no end under Refuse and Reconcile. The server itself removes a result at the end of its
// retention, and the rest of the record at the end of its lifetime (rule 13).
func TestEndsByTheServersHand(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	life := driver.Lifetime{Retention: time.Hour, Remember: 2 * time.Hour}
	for name, c := range map[string]struct {
		expire bool
		steps  bool
		end    func(rec *driver.Record, expire bool) error
		want   [3]time.Duration
	}{
		"claimed":                       {false, false, nil, [3]time.Duration{never, nought, nought}},
		"claimed, with a step":          {false, true, nil, [3]time.Duration{never, nought, never}},
		"claimed, to expire":            {true, true, nil, [3]time.Duration{life.Total(), nought, life.Total()}},
		"released":                      {false, true, release(s, driver.StateReleased), [3]time.Duration{life.Total(), nought, life.Total()}},
		"abandoned":                     {false, true, release(s, driver.StateAbandoned), [3]time.Duration{never, nought, never}},
		"abandoned, to expire":          {true, true, release(s, driver.StateAbandoned), [3]time.Duration{life.Total(), nought, life.Total()}},
		"completed":                     {false, true, complete(s, driver.ResultValue), [3]time.Duration{life.Total(), life.Retention, life.Retention}},
		"completed, elided":             {false, false, complete(s, driver.ResultElided), [3]time.Duration{life.Total(), nought, nought}},
		"released, and claimed anew":    {false, true, again(s), [3]time.Duration{never, nought, never}},
		"renewed, to expire":            {true, true, renew(s), [3]time.Duration{life.Total(), nought, life.Total()}},
		"renewed":                       {false, true, renew(s), [3]time.Duration{never, nought, never}},
		"a step after a step to expire": {true, true, step(s), [3]time.Duration{life.Total(), nought, life.Total()}},
	} {
		t.Run(name, func(t *testing.T) {
			req := claimOf(everonce.Key{Scope: "ends", ID: name})
			req.ExpireUnsettled, req.Lifetime = c.expire, life
			res, err := s.Claim(ctx, req)
			rec := decided(t, res, err, driver.DecideClaimed).Record
			if c.steps {
				save := stepOf(&rec, "mail")
				save.Lifetime = life
				_, err := s.SaveStep(ctx, save)
				noErr(t, err)
			}
			if c.end != nil {
				noErr(t, c.end(&rec, c.expire))
			}
			got := ends(t, client, s, req.ID)
			for i, part := range []string{"the record", "its result", "its steps"} {
				if want := c.want[i]; want < 0 && got[i] != want || want > 0 && (got[i] > want+time.Second || got[i] < want-time.Minute) {
					t.Errorf("the server keeps %s for %v, want %v", part, got[i], want)
				}
			}
		})
	}
}

var long = driver.Lifetime{Retention: time.Hour, Remember: 2 * time.Hour}

func release(s *redisstore.Store, state driver.State) func(*driver.Record, bool) error {
	return func(rec *driver.Record, expire bool) error {
		req := releaseOf(rec, state)
		req.ExpireUnsettled, req.Lifetime = expire, long
		_, err := s.Release(ctx(), req)
		return err
	}
}

func complete(s *redisstore.Store, kind driver.ResultKind) func(*driver.Record, bool) error {
	return func(rec *driver.Record, _ bool) error {
		req := completionOf(rec, "v")
		req.Lifetime = long
		if req.Result.Kind = kind; kind == driver.ResultElided {
			req.Result.Data = nil
		}
		_, err := s.Complete(ctx(), req)
		return err
	}
}

func again(s *redisstore.Store) func(*driver.Record, bool) error {
	return func(rec *driver.Record, _ bool) error {
		if err := release(s, driver.StateReleased)(rec, false); err != nil {
			return err
		}
		_, err := s.Claim(ctx(), claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name}))
		return err
	}
}

func renew(s *redisstore.Store) func(*driver.Record, bool) error {
	return func(rec *driver.Record, _ bool) error {
		req := renewalOf(rec)
		req.Lifetime = long
		_, err := s.Renew(ctx(), req)
		return err
	}
}

func step(s *redisstore.Store) func(*driver.Record, bool) error {
	return func(rec *driver.Record, _ bool) error {
		req := stepOf(rec, "hook")
		req.Lease = 0
		_, err := s.SaveStep(ctx(), req)
		return err
	}
}

// A result that the server has given away, against its word, is one that was not kept: the operation is done, and never
// runs again for that.
func TestPartsThatAreMissing(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	prefix := newPrefix(t, client)
	for name, readFirst := range map[string]bool{"claim": false, "read first": true} {
		s := newStore(t, client, &redisstore.Options{KeyPrefix: prefix, ReadFirst: readFirst})
		key := everonce.Key{Scope: "missing", ID: name}
		rec := claimed(t, s, key)
		noErr(t, complete(s, driver.ResultValue)(&rec, false))
		command(t, client, "DEL", redisstore.KeyOf(s, rec.ID)+":v")
		res, err := s.Claim(t.Context(), claimOf(key))
		got := decided(t, res, err, driver.DecideReplay).Record
		read, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID, Brief: readFirst})
		noErr(t, err)
		for _, result := range []driver.SavedResult{got.Result, read.Record.Result} {
			if result.Kind != driver.ResultElided || string(result.Summary) != "summary" || len(result.Data) != 0 {
				t.Errorf("%s: the result is %v with the summary %q", name, result.Kind, result.Summary)
			}
		}
	}
	s := newStore(t, client, &redisstore.Options{KeyPrefix: prefix})

	// A refusal stays one, by its code: the operation was not done.
	key := everonce.Key{Scope: "missing", ID: "refusal"}
	receiver, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	refuse := func() *everonce.PermanentError {
		res, err := everonce.Do(t.Context(), receiver, key, func(context.Context, *everonce.Attempt) (string, error) {
			return "", everonce.Permanent("declined", errors.New("no funds"), []byte("detail"))
		})
		failure := new(everonce.PermanentError)
		if res.Outcome != everonce.Rejected || !errors.As(err, &failure) {
			t.Errorf("a refusal is reported as %v, %v", res.Outcome, err)
		}
		return failure
	}
	refuse()
	command(t, client, "DEL", redisstore.KeyOf(s, key.RecordID())+":v")
	if got := refuse(); got.Code != "declined" || !got.Truncated {
		t.Errorf("what is left of a refusal is %+v, want its code, truncated", *got)
	}

	// A result whose record is gone goes with the next record, so that no other operation is ever answered by it.
	key = everonce.Key{Scope: "missing", ID: "record"}
	rec := claimed(t, s, key)
	noErr(t, complete(s, driver.ResultValue)(&rec, false))
	command(t, client, "DEL", redisstore.KeyOf(s, rec.ID))
	other := claimOf(key)
	other.Fingerprint = driver.Fingerprint(everonce.FingerprintOf("another"))
	res, err := s.Claim(t.Context(), other)
	rec = decided(t, res, err, driver.DecideClaimed).Record
	res, err = s.Claim(t.Context(), claimOf(key))
	decided(t, res, err, driver.DecideMismatch)
	noErr(t, complete(s, driver.ResultElided)(&rec, false))
	other.Nonce = driver.NewNonce()
	res, err = s.Claim(t.Context(), other)
	if got := decided(t, res, err, driver.DecideReplay).Record.Result; got.Kind != driver.ResultElided || len(got.Data) != 0 {
		t.Errorf("an elided result is reported as %v, %q", got.Kind, got.Data)
	}
}

// A release of a claim that has not arrived leaves a record that ends, and beside it nothing of one that is gone, whose
// time is over or which was removed by hand: no later operation is ever answered by that (rules 4 and 13).
func TestARefusedClaimLeavesNothingOfTheRecordBefore(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	for how, gone := range map[string]func(id driver.RecordID){
		"by hand": func(id driver.RecordID) { command(t, client, "DEL", redisstore.KeyOf(s, id)) },
		"by time": func(id driver.RecordID) { backdate(t, client, s, id, life.Total()) },
	} {
		rec := claimed(t, s, everonce.Key{Scope: "refused", ID: how})
		_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		gone(rec.ID)
		_, err = s.Release(t.Context(), driver.ReleaseRequest{
			ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Nonce: driver.NewNonce(), State: driver.StateReleased, Lifetime: life,
		})
		noErr(t, err)
		if got := ends(t, client, s, rec.ID); got[0] <= life.Total()-time.Minute || got[0] > life.Total()+time.Second || got[1] != nought || got[2] != nought {
			t.Errorf("gone %s: the record, the result and the steps are kept for %v, want %v and nothing", how, got, life.Total())
		}
	}
}

// The server keeps no key of a deleted scope: neither the steps of an abandoned record, which would never be removed,
// nor the result of a completed one.
func TestADeletedScopeLeavesNoKeys(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	var ids []driver.RecordID
	for name, end := range map[string]func(*driver.Record, bool) error{"abandoned": release(s, driver.StateAbandoned), "completed": complete(s, driver.ResultValue)} {
		rec := claimed(t, s, everonce.Key{Scope: "tenant", ID: name})
		_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		noErr(t, end(&rec, false))
		ids = append(ids, rec.ID)
	}
	_, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: "tenant"})
	noErr(t, err)
	for _, id := range ids {
		if got := ends(t, client, s, id); got != [3]time.Duration{nought, nought, nought} {
			t.Errorf("the record, the result and the steps are kept for %v, want nothing", got)
		}
	}
}

// As many steps as there may be, whose number has a byte more, end with the result too.
func TestMaxStepsEndWithTheResult(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	rec := claimed(t, s, testKey)
	for i := range driver.MaxSteps {
		_, err := s.SaveStep(t.Context(), stepOf(&rec, fmt.Sprint(i)))
		noErr(t, err)
	}
	_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	if ends, err := command(t, client, "PTTL", redisstore.KeyOf(s, rec.ID)+":s").ToInt64(); err != nil || ends < 0 {
		t.Errorf("the steps have %d ms left, %v; want an end", ends, err)
	}
}

// No attempt continues a record whose steps are missing: the steps' effects would be repeated. It can be looked at, and
// settled.
func TestStepsThatAreMissing(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	for verdict, want := range map[everonce.SettleVerdict]everonce.Outcome{everonce.SettleDone: everonce.Elided, everonce.SettleNotDone: everonce.Executed} {
		key := everonce.Key{Scope: "missing", ID: fmt.Sprint(verdict)}
		rec := claimed(t, s, key)
		for _, name := range []string{"mail", "hook"} {
			_, err := s.SaveStep(t.Context(), stepOf(&rec, name))
			noErr(t, err)
		}
		command(t, client, "HDEL", redisstore.KeyOf(s, rec.ID)+":s", "mail")
		_, err := s.Claim(t.Context(), driver.ClaimRequest{ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Nonce: rec.Nonce, Owner: "test", Lease: lease, Lifetime: life})
		if !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("Claim: %v, want a corrupt record", err)
		}
		got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		if err != nil || !got.Found || len(got.Record.Steps) != 1 {
			t.Errorf("Get: %v with the steps %v, %v", got.Found, got.Record.Steps, err)
		}
		noErr(t, r.Settle(t.Context(), key, everonce.Settlement{Verdict: verdict, Force: true}))
		res, err := everonce.Do(t.Context(), r, key, func(_ context.Context, a *everonce.Attempt) (int, error) {
			if steps := a.Steps(); len(steps) != 1 || steps[0].Name != "hook" {
				t.Errorf("it goes on from %+v", steps)
			}
			return 1, nil
		})
		if res.Outcome != want {
			t.Errorf("settled as %v: %v, %v, want %v", verdict, res.Outcome, err, want)
		}
	}
}

// Steps whose key holds something else are missing all of them.
func TestStepsOfAnotherTypeAreSettled(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	key := everonce.Key{Scope: "missing", ID: "all"}
	rec := claimed(t, s, key)
	_, err = s.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	_, err = s.Release(t.Context(), releaseOf(&rec, driver.StateAbandoned))
	noErr(t, err)
	steps := redisstore.KeyOf(s, rec.ID) + ":s"
	command(t, client, "DEL", steps)
	command(t, client, "SET", steps, "x")
	noErr(t, r.Settle(t.Context(), key, everonce.Settlement{Verdict: everonce.SettleNotDone}))
	res, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
		return everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 1, nil })
	})
	if res.Outcome != everonce.Executed {
		t.Errorf("once settled: %v, %v", res.Outcome, err)
	}
}

// A claim that is refused because steps are missing leaves the record unchanged: neither claimed, nor of a later
// attempt.
func TestAClaimThatMissesStepsWritesNothing(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	for _, state := range []driver.State{driver.StateReleased, driver.StateAbandoned, driver.StateClaimed} {
		rec := claimed(t, s, everonce.Key{Scope: "missing", ID: state.String()})
		_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		again := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
		if again.Take = driver.TakeAbandoned; state == driver.StateClaimed {
			again.Nonce = rec.Nonce
		} else {
			_, err = s.Release(t.Context(), releaseOf(&rec, state))
			noErr(t, err)
		}
		key := redisstore.KeyOf(s, rec.ID)
		command(t, client, "DEL", key+":s")
		before, err := command(t, client, "GET", key).ToString()
		noErr(t, err)
		if _, err := s.Claim(t.Context(), again); !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("%v: Claim: %v, want a corrupt record", state, err)
		}
		if after, err := command(t, client, "GET", key).ToString(); err != nil || after != before {
			t.Errorf("%v: the refused claim has changed the record, %v", state, err)
		}
	}
}
