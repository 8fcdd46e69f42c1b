package sqlitestore

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce/internal/sqldb"
)

// invoices are a business table in a separate file, through one connection, whose PRAGMAs then hold.
func invoices(t *testing.T) (db *sql.DB, once func(q Querier, no string) (string, bool, error)) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "invoices.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	mustRun(t, db, "CREATE TABLE invoice (no TEXT PRIMARY KEY, body BLOB NOT NULL)")
	mustRun(t, db, "INSERT INTO invoice VALUES ('there', 'x')")
	return db, func(q Querier, no string) (string, bool, error) {
		return InsertOnce(t.Context(), q, Insert{
			Table: "invoice", Columns: []string{"no", "body"}, Values: []any{no, make([]byte, 3000)}, Key: []string{"no"}, Returning: []string{"no"},
		}, func(r Row) (got string, err error) { return got, r.Scan(&got) })
	}
}

func mustRun(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM invoice").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A full database is an error and no duplicate; a duplicate needs no room, and is still reported as one. Earlier rows
// remain, and the refused one is inserted when there is room.
func TestInsertOnceIntoAFullDatabase(t *testing.T) {
	db, once := invoices(t)
	mustRun(t, db, "PRAGMA max_page_count = 20")
	var full error
	inserted := 1 // with the existing one
	for full == nil && inserted < 100 {
		no, first, err := once(db, fmt.Sprint(inserted))
		switch {
		case err != nil && (first || no != ""):
			t.Errorf("refused, and %q, %v all the same", no, first)
		case err == nil && !first:
			t.Errorf("invoice %d is a duplicate", inserted)
		}
		if full = err; err == nil {
			inserted++
		}
	}
	if ClassOf(full) != sqldb.ClassFull {
		t.Fatalf("after %d: %v, want an error of a full database", inserted, full)
	}
	if n := count(t, db); n != inserted {
		t.Errorf("%d rows, %d were inserted", n, inserted)
	}
	if no, first, err := once(db, "there"); err != nil || first || no != "there" {
		t.Errorf("a duplicate: %q, %v, %v", no, first, err)
	}
	mustRun(t, db, "PRAGMA max_page_count = 1000")
	if no, first, err := once(db, fmt.Sprint(inserted)); err != nil || !first || no != fmt.Sprint(inserted) {
		t.Errorf("with room again: %q, %v, %v", no, first, err)
	}
}

func TestInsertOnceIntoAReadOnlyDatabase(t *testing.T) {
	db, once := invoices(t)
	mustRun(t, db, "PRAGMA query_only = ON")
	refused := func(where string, q Querier) {
		t.Helper()
		for _, no := range []string{"new", "there"} {
			if got, first, err := once(q, no); ClassOf(err) != sqldb.ClassReadOnly || first || got != "" {
				t.Errorf("%s: %s: %q, %v, %v; want an error of a read-only database", where, no, got, first, err)
			}
		}
	}
	refused("alone", db)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	refused("in a transaction", tx)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	mustRun(t, db, "PRAGMA query_only = OFF")
	if _, first, err := once(db, "new"); err != nil || !first {
		t.Errorf("when it takes writes again: %v, %v", first, err)
	}
}
