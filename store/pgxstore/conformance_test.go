package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/pgxstore"
)

func capabilities() drivertest.Capabilities {
	return drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true, ChangeWaiter: true,
		MaxResult: 16 << 20, TxBatch: true,
	}
}

// variant is what the suite runs on beside the store of TestConformance.
func variant() drivertest.Capabilities {
	caps := capabilities()
	caps.Variant = true
	return caps
}

// harness is two stores on the tables of a schema. Whatever a test has done, a purge comes to each record when it has
// something to do about it, and not before.
func harness(t testing.TB, schema string, store, peer driver.Store) drivertest.Harness {
	t.Helper()
	t.Cleanup(func() {
		var wrong int
		if err := admin(t).QueryRow(context.Background(), "SELECT count(*) FROM "+schema+`.everonce_record WHERE state BETWEEN 1 AND 4 AND due_at IS DISTINCT FROM
			CASE WHEN purge_at IS NULL THEN NULL
			WHEN state = 1 AND lease_until > purge_at THEN lease_until
			WHEN state = 4 AND (result_codec IS NOT NULL OR result_data IS NOT NULL OR steps > 0) THEN result_until
			ELSE purge_at END`).Scan(&wrong); err != nil || wrong > 0 {
			t.Errorf("a purge comes to %d records at another time than it has to, %v", wrong, err)
		}
	})
	damage := func(change string) func(driver.RecordID) {
		return func(id driver.RecordID) {
			mustExec(t, "UPDATE "+schema+".everonce_record SET "+change+" WHERE id = $1", id[:])
		}
	}
	return drivertest.Harness{
		Store: store, Peer: peer,
		Damages:      map[string]func(driver.RecordID){"its state": damage("state = 77"), "its nonce": damage(`nonce = '\x00'`), "an earlier time": damage("claimed_at = -1")},
		DamagedLease: damage("lease_until = -1"),
		Newer: func(id driver.RecordID) {
			mustExec(t, "UPDATE "+schema+".everonce_record SET format = $1 WHERE id = $2", int64(driver.FormatVersion+1), id[:])
		},
		UnreadStep: func(id driver.RecordID, name string) {
			mustExec(t, "UPDATE "+schema+".everonce_step SET state = 77 WHERE id = $1 AND name = $2", id[:], name)
		},
		UnreadResult: func(id driver.RecordID, name string, kind int) {
			mustExec(t, "UPDATE "+schema+".everonce_step SET result_kind = nullif($3::int, 0) WHERE id = $1 AND name = $2", id[:], name, kind)
		},
	}
}

// conformanceConns leaves room on a server with its default of 100 connections.
const conformanceConns = 32

// TestConformance holds a store of pgx to the suite, with no more rights than the documentation says that a service
// needs. Store and peer are two stores on the same tables.
func TestConformance(t *testing.T) {
	service := newRole(t)
	config, err := pgxpool.ParseConfig(serverURL(t))
	noErr(t, err)
	config.MaxConns = conformanceConns
	config.ConnConfig.RuntimeParams["role"] = service
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	noErr(t, err)
	t.Cleanup(pool.Close)
	drivertest.RunWithBugs(t, func(t testing.TB) drivertest.Harness {
		schema := newSchema(t)
		opts := &pgxstore.Options{Schema: schema, Listen: true}
		applySchema(t, opts)
		grantService(t, schema, service)
		store, err := pgxstore.New(pool, opts)
		noErr(t, err)
		peer, err := pgxstore.New(pool, opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context())) // as a service calls it at each start: there is nothing to do
		return harness(t, schema, store, peer)
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
	drivertest.RunWithBugs(t, func(t testing.TB) drivertest.Harness {
		schema := newSchema(t)
		opts := &pgxstore.Options{Schema: schema, Listen: true}
		store, err := pgxstore.NewSQL(db, opts)
		noErr(t, err)
		peer, err := pgxstore.New(admin(t), opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		return harness(t, schema, store, peer)
	}, variant())
}
