package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/storetest"
)

func capabilities() storetest.Capabilities {
	return storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true,
		MaxResult: 16 << 20, TxBatch: true,
	}
}

// newer makes records of a schema those of a newer version.
func newer(t testing.TB, schema string) func(everonce.RecordID) {
	return func(id everonce.RecordID) {
		mustExec(t, "UPDATE "+schema+".everonce_record SET format = $1 WHERE id = $2", int64(everonce.FormatVersion+1), id[:])
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
		schema := newSchema(t)
		opts := &pgxstore.Options{Schema: schema}
		store, err := pgxstore.New(pool, opts)
		noErr(t, err)
		peer, err := pgxstore.New(pool, opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		return storetest.Harness{Store: store, Peer: peer, Newer: newer(t, schema)}
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
		schema := newSchema(t)
		opts := &pgxstore.Options{Schema: schema}
		store, err := pgxstore.NewSQL(db, opts)
		noErr(t, err)
		peer, err := pgxstore.New(admin(t), opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		return storetest.Harness{Store: store, Peer: peer, Newer: newer(t, schema)}
	}, capabilities())
}
