package pgxstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// A batch that asks for more locks than the server's table has room for is run in parts that fit in. Nothing of it took
// hold, and what is too much now need not be too much for ever.
func TestABatchForWhichTheTableOfLocksIsTooSmall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := startServer(t)
	server.set(map[string]string{ // room for some hundred locks
		"max_connections": "6", "max_locks_per_transaction": "10", "max_wal_senders": "0", "max_worker_processes": "0", "autovacuum_max_workers": "1",
	})
	server.Restart()
	pool := newPool(t, server.reach, 0)
	store, err := pgxstore.New(pool, nil)
	noErr(t, err)
	noErr(t, store.Migrate(ctx))
	_, err = pool.Exec(ctx, "CREATE TABLE effect (n int)")
	noErr(t, err)
	receiver, err := everonce.NewTxReceiver(store, nil)
	noErr(t, err)
	items := make([]everonce.BatchItem, driver.MaxBatch)
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
