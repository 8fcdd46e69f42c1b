package pgxstore_test

import (
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
		MaxResult: 16 << 20, TxBatch: true,
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
