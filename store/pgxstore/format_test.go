package pgxstore_test

import (
	"database/sql"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testing/golden"
	"github.com/everonce/everonce/store/pgxstore"
)

// This version reads what earlier ones have left in a database, and writes what they read in other processes.
func TestFormat(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		testFormat(t, func(t *testing.T, path func(*pgx.ConnConfig)) storeOf[pgx.Tx] {
			t.Helper()
			return unqualified(t, path)
		})
	})
	t.Run("sql", func(t *testing.T) {
		testFormat(t, func(t *testing.T, path func(*pgx.ConnConfig)) storeOf[*sql.Tx] {
			t.Helper()
			store, err := pgxstore.NewSQL(newDB(t, path), nil)
			noErr(t, err)
			return store
		})
	})
}

func testFormat[Tx any](t *testing.T, newStore func(*testing.T, func(*pgx.ConnConfig)) storeOf[Tx]) {
	golden.Test(t, "sql", func(t *testing.T, version int) golden.Harness {
		schema := newSchema(t)
		path := func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = schema }
		db := newDB(t, path)
		_, err := db.ExecContext(t.Context(), golden.File(t, version, "postgres.sql"))
		noErr(t, err)
		store := newStore(t, path)
		noErr(t, store.Migrate(t.Context()))
		tables := &golden.Tables{TB: t, DB: db, Prefix: "everonce_", Arg: func(n int) string { return "$" + strconv.Itoa(n) }}
		return golden.Harness{Store: store, Load: tables.Load, Dump: tables.Dump, Transact: golden.InTx(store)}
	})
}

// The statements that made the tables of a released version never change. A later version appends its statements.
func TestFormatOfTheTables(t *testing.T) {
	t.Parallel()
	text, err := pgxstore.Schema(nil)
	noErr(t, err)
	golden.Schema(t, "postgres", text)
}

// So it is with what the store keeps once.
func TestFormatOfTheSettings(t *testing.T) {
	t.Parallel()
	h := newSQL(t, setup{})
	(&golden.Tables{TB: t, DB: newDB(t, nil), Prefix: h.schema + ".everonce_", Arg: func(n int) string { return "$" + strconv.Itoa(n) }}).Identity(h.store)
}
