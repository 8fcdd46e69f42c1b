package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// TestWatch: a caller that waits for an attempt of another process hears of its end, whether it is guarded or a
// transaction, and also of a lost connection. The locks that a watch holds in the server are released with it.
func TestWatch(t *testing.T) {
	both(t, setup{opts: pgxstore.Options{Listen: true}}, testWatch[pgx.Tx], testWatch[*sql.Tx])
}

func testWatch[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	watcher := h.store.(driver.ChangeWaiter)
	watch := func() driver.WatchResult {
		t.Helper()
		res, err := watcher.Watch(ctx, driver.WatchRequest{ID: testKey.RecordID()})
		noErr(t, err)
		t.Cleanup(res.Stop)
		select {
		case <-res.Ended:
			t.Fatal("word came before the end")
		default:
		}
		return res
	}
	ended := func(what string, res driver.WatchResult) {
		t.Helper()
		select {
		case <-res.Ended:
		case <-time.After(3 * time.Minute):
			t.Fatalf("no word came of %s", what)
		}
	}
	begin := func() (driver.TxHandle[Tx], driver.ClaimResult) {
		t.Helper()
		req := txClaimOf(testKey)
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &req})
		decided(t, res, err, driver.DecideClaimed)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx, res
	}

	tx, _ := begin()
	lost := watch()
	mustExec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%'||$1||'%pg_locks%' AND pid <> pg_backend_pid()", h.schema)
	ended("a lost connection", lost)
	noErr(t, tx.Rollback(ctx))

	tx, claim := begin()
	waits := watch()
	done := completionOf(&claim.Record, "done")
	if _, err := tx.Commit(ctx, driver.CommitRequest{Complete: &done}); err != nil {
		t.Fatal(err)
	}
	ended("a transaction", waits)

	until := time.Now().Add(10 * time.Second)
	for number(t, "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND a.query LIKE '%'||$1||'%'", h.schema) > 0 {
		if time.Now().After(until) {
			t.Fatal("a lock is left")
		}
	}
}

// TestWatchAtAnEnd: an attempt that is just ending cannot be watched, and a watch that could not begin keeps no
// connection.
func TestWatchAtAnEnd(t *testing.T) {
	both(t, setup{opts: pgxstore.Options{Listen: true}}, testWatchAtAnEnd[pgx.Tx], testWatchAtAnEnd[*sql.Tx])
}

func testWatchAtAnEnd[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	tx, err := h.begin(ctx, sql.LevelDefault)
	noErr(t, err)
	defer h.abort(ctx, tx) //nolint:errcheck // cleanup
	joined, err := h.store.Join(ctx, tx)
	noErr(t, err)
	claim, err := joined.Claim(ctx, txClaimOf(testKey))
	decided(t, claim, err, driver.DecideClaimed)
	_, err = joined.Complete(ctx, completionOf(&claim.Record, "done"))
	noErr(t, err)

	if _, err := h.store.(driver.ChangeWaiter).Watch(ctx, driver.WatchRequest{ID: testKey.RecordID()}); err == nil {
		t.Fatal("a watch is open, and no caller hears of its end")
	}
	until := time.Now().Add(10 * time.Second)
	for number(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%'||$1||'%pg_locks%' AND pid <> pg_backend_pid()", h.schema) > 0 {
		if time.Now().After(until) {
			t.Fatal("no caller waits, and the connection is open")
		}
	}
}

// TestWatchIsAnOption: it needs a connection that can listen.
func TestWatchIsAnOption(t *testing.T) {
	_, err := newPgx(t, setup{}).store.(driver.ChangeWaiter).Watch(context.Background(), driver.WatchRequest{ID: testKey.RecordID()})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch without Options.Listen: %v", err)
	}
}
