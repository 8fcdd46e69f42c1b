package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/redisstore"
)

// needsSyncLog leaves a test out where the server is older than WAITAOF.
func needsSyncLog(t *testing.T, p *process) {
	t.Helper()
	text, err := command(t, p.client(t), "INFO", "server").ToString()
	noErr(t, err)
	if version := redisstore.InfoOf(text)["redis_version"]; strings.HasPrefix(version, "7.0.") {
		t.Skipf("Options.SyncLog: Redis %s has no WAITAOF; scripts/newer runs it on a newer one", version)
	}
}

// TestConformanceSyncLog holds a store to the suite whose every write waits for the server's log.
func TestConformanceSyncLog(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	needsSyncLog(t, p)
	drivertest.Run(t, factory(t, p.client(t), p.client(t), redisstore.Options{SyncLog: true}), variant())
}

// A write to a server without a log, or to a replica without one, is not acknowledged; nor is the replay of it.
func TestSyncLogIsWaitedFor(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	needsSyncLog(t, master)
	replica := startReplica(t, master)
	client := master.client(t)
	alone := newStore(t, client, &redisstore.Options{SyncLog: true, WaitTimeout: time.Minute})
	both := newStore(t, client, &redisstore.Options{SyncLog: true, Replicas: 1, WaitTimeout: time.Minute})
	hasty := newStore(t, client, &redisstore.Options{SyncLog: true, Replicas: 1, WaitTimeout: 20 * time.Millisecond})
	ctx := t.Context()
	rec := claimed(t, both, testKey)

	noErr(t, replica.pause())
	_, errComplete := hasty.Complete(ctx, completionOf(&rec, "v"))
	_, errReplay := hasty.Claim(ctx, claimOf(testKey))
	_, errLookup := hasty.Get(ctx, driver.GetRequest{ID: rec.ID, Brief: true})
	for what, err := range map[string]error{"completion": errComplete, "replay": errReplay, "look": errLookup} {
		if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("a %s that no replica has in its log: %v", what, err)
		}
	}
	if _, err := alone.Complete(ctx, completionOf(&rec, "v")); err != nil {
		t.Errorf("where no replica is asked for: %v", err)
	}
	noErr(t, replica.skipFailed())
	if _, err := both.Complete(ctx, completionOf(&rec, "v")); err != nil {
		t.Errorf("where the replica has it: %v", err)
	}

	command(t, client, "CONFIG", "SET", "appendonly", "no")
	if _, err := alone.Claim(ctx, claimOf(everonce.Key{Scope: "unlogged", ID: "claim"})); !errors.Is(err, driver.ErrStore) {
		t.Errorf("a claim that no log has: %v, want ErrStore", err)
	}
	if _, err := alone.Claim(ctx, claimOf(testKey)); !errors.Is(err, driver.ErrStore) {
		t.Errorf("a replay from a server without a log: %v, want ErrStore", err)
	}
}

// A log that is synced once a second makes a write wait for about one, which is no failure. A wait that would fail time
// and again is refused.
func TestSyncLogEverySecond(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--appendfsync", "everysec")
	needsSyncLog(t, p)
	client := p.client(t)
	ctx := t.Context()
	s := newStore(t, client, &redisstore.Options{SyncLog: true})
	notes(t, s, "WAITAOF")
	for i := range 3 { // each begins when a sync has just ended
		rec := claimed(t, s, everonce.Key{Scope: "second", ID: strconv.Itoa(i)})
		if _, err := s.Complete(ctx, completionOf(&rec, "v")); err != nil {
			t.Errorf("a completion: %v", err)
		}
	}
	refused := func(opts redisstore.Options, want string) {
		t.Helper()
		if _, err := redisstore.New(ctx, client, &opts); !errors.Is(err, driver.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want one that says %q", opts, err, want)
		}
	}
	refused(redisstore.Options{SyncLog: true, WaitTimeout: 2*time.Second - 1}, "it must be at least 2s")
	if _, err := redisstore.New(ctx, client, &redisstore.Options{Replicas: 1, WaitTimeout: time.Millisecond}); err != nil {
		t.Errorf("a short wait for replicas alone: %v", err)
	}
	command(t, client, "CONFIG", "SET", "appendfsync", "no")
	refused(redisstore.Options{SyncLog: true}, "appendfsync no")
	if err := s.Check(ctx); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("Check of a log that is not synced any more: %v", err)
	}
	command(t, client, "CONFIG", "SET", "appendfsync", "always")
	if _, err := redisstore.New(ctx, client, &redisstore.Options{SyncLog: true, WaitTimeout: time.Millisecond}); err != nil {
		t.Errorf("a short wait for a log that is synced at every write: %v", err)
	}
	command(t, client, "CONFIG", "SET", "appendonly", "no")
	refused(redisstore.Options{SyncLog: true, Accept: redisstore.RiskNoLog}, "set appendonly yes")
}

// A command that is named WAITAOF and answers something else (here LRANGE, an empty list) has not confirmed a sync.
func TestAnotherAnswerToWaitAOFIsAFailure(t *testing.T) {
	t.Parallel()
	args := []string{"--rename-command", "INFO", "INFO-of-old", "--rename-command", "LRANGE", "WAITAOF"} // without INFO the version is unknown
	if known, err := command(t, startServer(t).client(t), "COMMAND", "INFO", "WAITAOF").ToArray(); err != nil || len(known) != 1 {
		t.Fatal(known, err)
	} else if !known[0].IsNil() {
		args = append([]string{"--rename-command", "WAITAOF", "WAITAOF-of-old"}, args...)
	}
	s := newStore(t, startServer(t, args...).client(t), &redisstore.Options{SyncLog: true})
	if _, err := s.Claim(t.Context(), claimOf(testKey)); !errors.Is(err, driver.ErrStore) {
		t.Errorf("Claim: %v, want ErrStore", err)
	}
	if _, err := s.CheckWrite(t.Context(), driver.CheckWriteRequest{}); !errors.Is(err, driver.ErrStore) {
		t.Errorf("CheckWrite: %v, want ErrStore", err)
	}
}
