package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// A connection that finds other tables by its search_path than the connections before it is refused.
func TestSearchPathsThatDiffer(t *testing.T) {
	t.Parallel()
	mine, other := newPgx(t, setup{}).schema, newPgx(t, setup{}).schema
	var dialled atomic.Int64
	pool := newPool(t, nil, 2)
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		path := mine
		if dialled.Add(1) > 1 {
			path = other
		}
		_, err := conn.Exec(ctx, "SET search_path = "+path)
		return err
	}
	differing, err := pgxpool.NewWithConfig(t.Context(), config)
	noErr(t, err)
	t.Cleanup(differing.Close)
	store, err := pgxstore.New(differing, nil)
	noErr(t, err)
	res, err := store.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideClaimed)
	held, err := differing.Acquire(t.Context())
	noErr(t, err)
	defer held.Release()
	if _, err := store.Claim(t.Context(), claimOf(testKey)); !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "set Options.Schema") {
		t.Errorf("a claim among other tables: %v", err)
	}
	if n := number(t, "SELECT count(*) FROM "+other+".everonce_record"); n != 0 {
		t.Errorf("%d records among other tables", n)
	}
}

// The same holds for callers' own transactions: of two that find different tables one is refused, and the other runs
// once.
func TestJoinedTransactionsWhoseSearchPathsDiffer(t *testing.T) {
	t.Parallel()
	mine, other := newPgx(t, setup{}).schema, newPgx(t, setup{}).schema
	path := func(schema string) func(*pgx.ConnConfig) {
		return func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = schema }
	}
	t.Run("pgx", func(t *testing.T) { // one after the other: both claim the same key
		pool, differing := newPool(t, path(mine), 0), newPool(t, path(other), 0)
		store, err := pgxstore.New(pool, nil)
		noErr(t, err)
		testDifferingPaths(t, store, pool.Begin, differing.Begin)
	})
	t.Run("sql", func(t *testing.T) {
		db, differing := newDB(t, path(mine)), newDB(t, path(other))
		store, err := pgxstore.NewSQL(db, nil)
		noErr(t, err)
		begin := func(db *sql.DB) func(context.Context) (*sql.Tx, error) {
			return func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) }
		}
		testDifferingPaths(t, store, begin(db), begin(differing))
	})
}

func testDifferingPaths[Tx any](t *testing.T, store driver.TxStore[Tx], begins ...func(context.Context) (Tx, error)) {
	r, err := everonce.NewTxReceiver(store, nil)
	noErr(t, err)
	ran := 0
	for i, begin := range begins {
		tx, err := begin(t.Context())
		noErr(t, err)
		_, err = everonce.DoTx(t.Context(), tx, r, testKey, func(context.Context) (string, error) { ran++; return "v", nil })
		if refused := err != nil && strings.Contains(err.Error(), "set Options.Schema"); refused != (i > 0) || ran != 1 {
			t.Errorf("transaction %d: %v, run %d times", i, err, ran)
		}
		switch tx := any(tx).(type) {
		case pgx.Tx:
			noErr(t, tx.Rollback(t.Context()))
		case *sql.Tx:
			noErr(t, tx.Rollback())
		}
	}
}
