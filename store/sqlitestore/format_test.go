package sqlitestore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce/internal/testing/golden"
)

// This version reads what earlier ones have left in a file, and writes what they read in other processes.
func TestFormat(t *testing.T) {
	t.Parallel()
	golden.Test(t, "sql", func(t *testing.T, version int) golden.Harness {
		path := filepath.Join(t.TempDir(), "records.db")
		before, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := before.ExecContext(t.Context(), golden.File(t, version, "sqlite.sql")); err != nil {
			t.Fatal(err)
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		store := open(t, path, nil)
		tables := &golden.Tables{TB: t, DB: store.DB(), Prefix: "everonce_", Arg: func(int) string { return "?" }}
		return golden.Harness{Store: store, Load: tables.Load, Dump: tables.Dump, Transact: golden.InTx(store)}
	})
}

// The statements that made the tables of a released version never change. A later version appends its statements.
func TestFormatOfTheTables(t *testing.T) {
	t.Parallel()
	golden.Schema(t, "sqlite", open(t, filepath.Join(t.TempDir(), "records.db"), nil).Schema())
}

// So it is with what the store keeps once.
func TestFormatOfTheSettings(t *testing.T) {
	t.Parallel()
	store := open(t, filepath.Join(t.TempDir(), "records.db"), nil)
	(&golden.Tables{TB: t, DB: store.DB(), Prefix: "everonce_", Arg: func(int) string { return "?" }}).Identity(store)
}
