package pgxstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/storetest"
)

func capabilities() storetest.Capabilities {
	return storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true,
		MaxResult: 16 << 20,
	}
}

// conformanceConns leaves room on a server with its default of 100 connections.
const conformanceConns = 32

// TestConformance holds a store of pgx to the suite. Store and peer are two stores on the same tables.
func TestConformance(t *testing.T) {
	config, err := pgxpool.ParseConfig(serverURL(t))
	noErr(t, err)
	config.MaxConns = conformanceConns
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	noErr(t, err)
	t.Cleanup(pool.Close)
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		opts := &pgxstore.Options{Schema: newSchema(t)}
		store, err := pgxstore.New(pool, opts)
		noErr(t, err)
		peer, err := pgxstore.New(pool, opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		return storetest.Harness{Store: store, Peer: peer}
	}, capabilities())
}

// TestConformanceSQL holds a store of database/sql to the suite. The peer is one of pgx.
func TestConformanceSQL(t *testing.T) {
	config, err := pgx.ParseConfig(serverURL(t))
	noErr(t, err)
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(conformanceConns)
	db.SetMaxIdleConns(conformanceConns)
	t.Cleanup(func() { _ = db.Close() })
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		opts := &pgxstore.Options{Schema: newSchema(t)}
		store, err := pgxstore.NewSQL(db, opts)
		noErr(t, err)
		peer, err := pgxstore.New(admin(t), opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		return storetest.Harness{Store: store, Peer: peer}
	}, capabilities())
}

// txHarness is a handle as the suite of transactions takes it. Its connections are its own, because the
// suite holds several at once.
func txHarness[Tx any](t testing.TB, h *handle[Tx]) storetest.TxHarness[Tx] {
	t.Helper()
	peer, err := pgxstore.New(admin(t), &pgxstore.Options{Schema: h.schema})
	noErr(t, err)
	mustExec(t, "CREATE TABLE "+h.schema+".applied (name text NOT NULL)") // rows, so that effects of one name do not wait for each other
	return storetest.TxHarness[Tx]{
		Harness: storetest.Harness{Store: h.store, Peer: peer},
		Apply: func(ctx context.Context, tx Tx, name string) error {
			return h.exec(ctx, tx, "INSERT INTO "+h.schema+".applied VALUES ($1)", name)
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = h.query(ctx, "SELECT count(*) FROM "+h.schema+".applied WHERE name = $1", name).Scan(&n)
			return n, err
		},
		Begin: func(ctx context.Context) (storetest.CallerTx[Tx], error) {
			tx, err := h.begin(ctx, sql.LevelDefault)
			return storetest.CallerTx[Tx]{
				Tx:       tx,
				Commit:   func(ctx context.Context) error { return h.commit(ctx, tx) },
				Rollback: func(ctx context.Context) error { return h.abort(ctx, tx) },
			}, err
		},
		Spoil: func(ctx context.Context, tx Tx) error {
			return h.exec(ctx, tx, "INSERT INTO "+h.schema+".applied VALUES (NULL)")
		},
	}
}

func TestTransactionConformance(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) storetest.TxHarness[pgx.Tx] {
		return txHarness(t, newPgx(t, setup{conns: conformanceConns}))
	}, capabilities())
}

func TestTransactionConformanceSQL(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) storetest.TxHarness[*sql.Tx] {
		return txHarness(t, newSQL(t, setup{conns: conformanceConns}))
	}, capabilities())
}
