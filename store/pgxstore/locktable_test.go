package pgxstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// ownServer starts a server of the test's own, with settings that need a start.
func ownServer(t *testing.T, settings map[string]string) *pgxpool.Pool {
	t.Helper()
	dir, err := os.MkdirTemp("", "everonce-pgxstore-") //nolint:usetesting // the server may run as another user, which must reach it
	noErr(t, err)
	services := func(what string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join("..", "..", "scripts", "services"), what, "postgres") //nolint:gosec // the arguments are this file's
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "EVERONCE_") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "EVERONCE_SERVICES_DIR="+dir, "EVERONCE_NO_DOCKER=1")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", cmd.Args, err, said.String())
		}
		return string(out)
	}
	t.Cleanup(func() {
		services("down")
		noErr(t, os.RemoveAll(dir))
	})
	connect := func() *pgxpool.Pool {
		_, url, _ := strings.Cut(services("env"), "EVERONCE_TEST_POSTGRES_URL=")
		pool, err := pgxpool.New(context.Background(), strings.ReplaceAll(strings.TrimSpace(url), `\`, "")) // it is quoted for a shell
		noErr(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	services("up")
	pool := connect()
	for name, value := range settings {
		_, err := pool.Exec(t.Context(), fmt.Sprintf("ALTER SYSTEM SET %s = %s", name, value))
		noErr(t, err)
	}
	services("restart")
	return connect()
}

// A batch that asks for more locks than the server's table has room for is run in parts that fit in. Nothing of it took
// hold, and what is too much now need not be too much for ever.
func TestABatchForWhichTheTableOfLocksIsTooSmall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := ownServer(t, map[string]string{ // room for some hundred locks
		"max_connections": "6", "max_locks_per_transaction": "10", "max_wal_senders": "0", "max_worker_processes": "0", "autovacuum_max_workers": "1",
	})
	store, err := pgxstore.New(pool, nil)
	noErr(t, err)
	noErr(t, store.Migrate(ctx))
	_, err = pool.Exec(ctx, "CREATE TABLE effect (n int)")
	noErr(t, err)
	receiver, err := everonce.NewTxReceiver(store, nil)
	noErr(t, err)
	items := make([]everonce.BatchItem, everonce.MaxBatch)
	for i := range items {
		items[i].Key = everonce.Key{Scope: "locks", ID: fmt.Sprint(i)}
	}
	all, err := everonce.TransactBatch(ctx, receiver, items, everonce.EachItem(func(ctx context.Context, tx pgx.Tx, i int) (int, error) {
		_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", i)
		return i, err
	}))
	noErr(t, err)
	for i, res := range all {
		if res.Outcome != everonce.Executed {
			t.Fatalf("item %d: %v, %v", i, res.Outcome, res.Err)
		}
	}
	var effects, different int
	noErr(t, pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT n) FROM effect").Scan(&effects, &different))
	if effects != len(items) || different != len(items) {
		t.Errorf("%d effects, %d different ones, want %d", effects, different, len(items))
	}
}
