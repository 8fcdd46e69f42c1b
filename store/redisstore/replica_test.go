package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/redisstore"
)

// startReplica starts a replica, and waits until it follows.
func startReplica(t *testing.T, of *process) *process {
	t.Helper()
	p := startServer(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(of.port), "--repl-diskless-sync-delay", "0")
	follows(t, p.client(t))
	return p
}

// follows waits until a replica has what its master has.
func follows(t *testing.T, client rueidis.Client) {
	t.Helper()
	for up := false; !up; {
		text, err := command(t, client, "INFO", "replication").ToString()
		noErr(t, err)
		up = redisstore.InfoOf(text)["master_link_status"] == "up"
	}
}

// With Options.Replicas a write is acknowledged when the replica has it: a failover to that one loses nothing. A write
// that no replica has is not acknowledged, and its repetition waits again, though the record is written already.
func TestWritesWaitForReplicas(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	s := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute})
	hasty := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: 20 * time.Millisecond})
	notes(t, s, "waits for 1 replicas")
	ctx := t.Context()

	there := newStore(t, replica.client(t), &redisstore.Options{}) // reads what the replica has
	state := func(rec *driver.Record) driver.State {
		t.Helper()
		text, err := command(t, replica.client(t), "GETRANGE", redisstore.KeyOf(there, rec.ID), "33", "33").ToString()
		noErr(t, err)
		if text == "" {
			return 0
		}
		return driver.State(text[0])
	}
	rec := claimed(t, s, testKey)
	if got := state(&rec); got != driver.StateClaimed {
		t.Errorf("after an acknowledged claim the replica has %v", got)
	}

	noErr(t, replica.pause())
	req := claimOf(everonce.Key{Scope: "paused", ID: "claim"})
	_, errClaim := hasty.Claim(ctx, req)
	_, errStep := hasty.SaveStep(ctx, stepOf(&rec, "mail"))
	_, errRenew := hasty.Renew(ctx, renewalOf(&rec))
	_, errComplete := hasty.Complete(ctx, completionOf(&rec, "v"))
	_, errAgain := hasty.Complete(ctx, completionOf(&rec, "v"))
	other := claimOf(everonce.Key{Scope: "paused", ID: "release"})
	_, errOther := hasty.Claim(ctx, other)
	released := driver.ReleaseRequest{ID: other.ID, Scope: other.Scope, Name: other.Name, Nonce: other.Nonce, State: driver.StateReleased, Lifetime: life}
	_, errRelease := hasty.Release(ctx, released)
	_, errReleaseAgain := hasty.Release(ctx, released)
	for what, err := range map[string]error{
		"claim": errClaim, "step": errStep, "renewal": errRenew, "completion": errComplete, "repeated completion": errAgain,
		"other claim": errOther, "release": errRelease, "repeated release": errReleaseAgain,
	} {
		if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("a %s that no replica has: %v", what, err)
		}
	}
	noErr(t, replica.skipFailed())
	_, err := s.Complete(ctx, completionOf(&rec, "v"))
	noErr(t, err)
	if got := state(&rec); got != driver.StateCompleted {
		t.Errorf("after an acknowledged completion the replica has %v", got)
	}
	res, err := s.Claim(ctx, req)
	decided(t, res, err, driver.DecideClaimed)

	// The failover: the acknowledged records exist.
	master.kill(t)
	command(t, replica.client(t), "REPLICAOF", "NO", "ONE")
	after := newStore(t, replica.client(t), &redisstore.Options{})
	res, err = after.Claim(ctx, claimOf(testKey))
	if got := decided(t, res, err, driver.DecideReplay).Record; string(got.Result.Data) != "v" {
		t.Errorf("after the failover %q is replayed", got.Result.Data)
	}
}

// Nor is a duplicate answered by a result that no replica has: by no kind of claim, and by no Lookup.
func TestReplaysWaitForReplicas(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	rec := claimed(t, newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute}), testKey)
	noErr(t, replica.pause())
	for _, first := range []bool{false, true} {
		s := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: 20 * time.Millisecond, ReadFirst: first})
		_, errComplete := s.Complete(t.Context(), completionOf(&rec, "v"))
		_, errReplay := s.Claim(t.Context(), claimOf(testKey))
		fresh := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: 20 * time.Millisecond, ReadFirst: first}) // which has written nothing
		_, errLookup := fresh.Get(t.Context(), driver.GetRequest{ID: rec.ID, Brief: true})
		for what, err := range map[string]error{"completion": errComplete, "replay": errReplay, "look": errLookup} {
			if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
				t.Errorf("read first %v: a %s of what no replica has: %v", first, what, err)
			}
		}
	}
	noErr(t, replica.skipFailed())
	patient := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute})
	got, err := patient.Get(t.Context(), driver.GetRequest{ID: rec.ID, Brief: true})
	if err != nil || string(got.Record.Result.Data) != "v" {
		t.Errorf("what the replica has by now: %q, %v", got.Record.Result.Data, err)
	}
}

// From Redis 7.2 on WAIT and WAITAOF wait for what their own connection has written. So every answer that waits follows
// a write of the record's key, also where there was nothing to write; and that changes nothing.
func TestWhatWaitsWritesSomething(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, master)
	client := master.client(t)
	writes := func() string {
		t.Helper()
		text, err := command(t, client, "INFO", "persistence").ToString()
		noErr(t, err)
		return redisstore.InfoOf(text)["rdb_changes_since_last_save"]
	}
	s := newStore(t, client, &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute})
	ctx := t.Context()
	noErr(t, errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}})))
	runs, done := claimed(t, s, testKey), claimed(t, s, everonce.Key{Scope: "waits", ID: "done"})
	_, err := s.Complete(ctx, completionOf(&done, "v"))
	noErr(t, err)
	over := claimed(t, s, everonce.Key{Scope: "waits", ID: "released"})
	released := driver.ReleaseRequest{ID: over.ID, Token: over.Token, Nonce: over.Nonce, State: driver.StateReleased, Lifetime: life}
	_, err = s.Release(ctx, released)
	noErr(t, err)
	whole := func() string {
		t.Helper()
		text, err := command(t, client, "GET", redisstore.KeyOf(s, done.ID)).ToString()
		noErr(t, err)
		return text
	}
	for what, call := range map[string]func() error{
		"replay": func() error {
			_, err := s.Claim(ctx, claimOf(everonce.Key{Scope: "waits", ID: "done"}))
			return err
		},
		"in progress": func() error { _, err := s.Claim(ctx, claimOf(testKey)); return err },
		"look":        func() error { _, err := s.Get(ctx, driver.GetRequest{ID: runs.ID, Brief: true}); return err },
		"look at a result": func() error {
			_, err := s.Get(ctx, driver.GetRequest{ID: done.ID, Brief: true})
			return err
		},
		"repeated completion": func() error { _, err := s.Complete(ctx, completionOf(&done, "v")); return err },
		"repeated release":    func() error { _, err := s.Release(ctx, released); return err },
		"repeated identity":   func() error { return errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}})) },
	} {
		before, text := writes(), whole()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if writes() == before {
			t.Errorf("%s: the answer waits for no write", what)
		}
		if whole() != text {
			t.Errorf("%s: the record has changed", what)
		}
	}
	absent := driver.GetRequest{ID: driver.RecordID{1}, Brief: true}
	if got, err := s.Get(ctx, absent); err != nil || got.Found {
		t.Errorf("a missing record: %+v, %v", got, err)
	}
	if n, err := command(t, client, "EXISTS", redisstore.KeyOf(s, absent.ID)).ToInt64(); err != nil || n != 0 {
		t.Errorf("a look at it has made it: %d, %v", n, err)
	}
}

// The store's identity waits as its records do: a failover that forgot it would let another secret in, to which every
// record is unknown.
func TestTheIdentityWaitsForReplicas(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	noErr(t, replica.pause())
	s := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: 20 * time.Millisecond})
	for _, call := range []string{"first", "repeated"} {
		if _, err := s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}}); !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s: an identity that no replica has: %v", call, err)
		}
	}
	noErr(t, replica.skipFailed())
	patient := newStore(t, master.client(t), &redisstore.Options{Replicas: 1, WaitTimeout: time.Minute})
	noErr(t, errOf(patient.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}})))
	if _, err := patient.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{2}}); !errors.Is(err, driver.ErrIdentity) {
		t.Errorf("another identity: %v", err)
	}
}

// Without Options.Replicas a failover forgets what the new master had not received: its operation is new, under Refuse
// too. The doc says so, and Health.
func TestAFailoverForgets(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	s := newStore(t, master.client(t), &redisstore.Options{})
	notes(t, s, "a failover may lose the latest acknowledged writes")
	command(t, replica.client(t), "REPLICAOF", "127.0.0.1", strconv.Itoa(testserver.FreePort(t))) // its line to the master is cut
	rec := claimed(t, s, testKey)
	_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	master.kill(t)
	command(t, replica.client(t), "REPLICAOF", "NO", "ONE")
	r, err := everonce.NewReceiver(newStore(t, replica.client(t), &redisstore.Options{}), everonce.Refuse, nil)
	noErr(t, err)
	res, err := everonce.Do(t.Context(), r, testKey, func(context.Context, *everonce.Attempt) (string, error) { return "again", nil })
	if err != nil || res.Outcome != everonce.Executed {
		t.Errorf("after a failover that forgot the record: %v, %v; want it new", res.Outcome, err)
	}
}

// A client that still writes to a master which has become a replica gets an error: a failure, and no answer. The
// replica still answers for the running and finished attempts that it has.
func TestReadOnlyIsAFailure(t *testing.T) {
	t.Parallel()
	old := startServer(t, "--replica-serve-stale-data", "yes")
	s := newStore(t, old.client(t), &redisstore.Options{})
	rec, done := claimed(t, s, testKey), claimed(t, s, everonce.Key{Scope: "demoted", ID: "done"})
	_, err := s.Complete(t.Context(), completionOf(&done, "v"))
	noErr(t, err)
	command(t, old.client(t), "REPLICAOF", "127.0.0.1", strconv.Itoa(testserver.FreePort(t))) // which it does not reach: it keeps its records
	errs := everyCall(t.Context(), s, &rec)
	failures(t, errs, "Claim", "Renew", "SaveStep", "Complete", "Release", "KeepIdentity", "Watch")
	for _, call := range []string{"Claim", "Renew", "SaveStep", "Complete", "Release"} {
		if err := errs[call]; err != nil && !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: %v, want READONLY", call, err)
		}
	}
	if _, err := s.CheckWrite(t.Context(), driver.CheckWriteRequest{}); !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("CheckWrite: %v, want ErrStore, and READONLY", err)
	}
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	_, err = everonce.Do(t.Context(), r, everonce.Key{Scope: "demoted", ID: "new"}, func(context.Context, *everonce.Attempt) (string, error) { return "", nil })
	if !errors.Is(err, driver.ErrStore) || strings.Count(err.Error(), "store failed") != 1 {
		t.Errorf("Do: %v, want ErrStore, and said once", err)
	}
	res, err := s.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideInProgress)
	res, err = s.Claim(t.Context(), claimOf(everonce.Key{Scope: "demoted", ID: "done"}))
	decided(t, res, err, driver.DecideReplay)
}

// A replica that has taken over its new master's data, without the record, does not create the record.
func TestAReplicaClaimsNothing(t *testing.T) {
	t.Parallel()
	old, next := startServer(t), startServer(t, "--repl-diskless-sync-delay", "0")
	client := old.client(t)
	s := newStore(t, client, &redisstore.Options{})
	claimed(t, s, testKey)
	command(t, client, "REPLICAOF", "127.0.0.1", strconv.Itoa(next.port))
	follows(t, client)
	_, err := s.Claim(t.Context(), claimOf(testKey))
	failures(t, map[string]error{"Claim": err}, "Claim")
	if err != nil && !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("Claim: %v, want READONLY", err)
	}
}

// A server that still reads its data from the disk is a failure, not one without records.
func TestLoadingIsAFailure(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--key-load-delay", "1000")
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	rec := claimed(t, s, testKey)
	pipe := make(rueidis.Commands, 20_000) // it answers after every thousand that it has read
	for i := range pipe {
		pipe[i] = client.B().Arbitrary("SET", "filler:"+strconv.Itoa(i), "x").Build()
	}
	for _, res := range client.DoMulti(t.Context(), pipe...) {
		noErr(t, res.Error())
	}
	p.kill(t)
	p.launch(t)
	for seen := false; ; {
		_, err := s.Renew(t.Context(), renewalOf(&rec))
		if err == nil {
			if !seen {
				t.Error("the server was never seen loading")
			}
			return
		}
		failures(t, map[string]error{"Renew": err}, "Renew")
		if !seen && strings.Contains(err.Error(), "LOADING") {
			seen = true
			command(t, client, "CONFIG", "SET", "key-load-delay", "0") // it may hurry now
		}
	}
}
