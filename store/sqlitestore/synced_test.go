package sqlitestore

import (
	"context"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// An acknowledged write survives a loss of power because each connection that writes syncs the write-ahead log at its
// commits: the connection of the grouped writes, and the connections of transactions. Health reports a changed setting.
func TestEveryCommitIsSynced(t *testing.T) {
	s := openTest(t, nil)
	if _, err := s.Claim(t.Context(), claimOf("a")); err != nil {
		t.Fatal(err)
	}
	const full = 2
	grouped := func(pragma string) (value string) {
		s.db.turn.enterUnless(nil)
		defer s.db.turn.leave()
		err := s.db.group.conn.send(context.Background(), &sqldb.Call{
			Statement: &sqldb.Statement{Name: "pragma", Rows: true, Text: "SELECT CAST(" + pragma + " AS TEXT) FROM pragma_" + pragma},
			Each:      func(r sqldb.Row) error { return r.Scan(&value) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	if level, mode := grouped("synchronous"), grouped("journal_mode"); level != "2" || mode != "wal" {
		t.Errorf("grouped writes: synchronous %s, journal_mode %s; want 2 and wal", level, mode)
	}
	for range 3 {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var level int
		var mode string
		if err := tx.QueryRow("SELECT synchronous, journal_mode FROM pragma_synchronous, pragma_journal_mode").Scan(&level, &mode); err != nil || level != full || mode != "wal" {
			t.Errorf("a transaction: synchronous %d, journal_mode %s, %v; want %d and wal", level, mode, err, full)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	noted := func(want string) {
		t.Helper()
		if h, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || len(h.Notes) != 1 || !strings.Contains(h.Notes[0], want) {
			t.Errorf("Health notes %q, %v; want %q", h.Notes, err, want)
		}
	}
	noted("survives a loss of power")
	s.DB().SetMaxOpenConns(1)
	if _, err := s.DB().Exec("PRAGMA synchronous = NORMAL"); err != nil {
		t.Fatal(err)
	}
	noted("a loss of power can undo what was acknowledged")
	if _, err := s.DB().Exec("PRAGMA foreign_keys = OFF"); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // a transaction is synced all the same, and drops the steps of a record with it
		tx, err := s.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var level, keys int
		if err := tx.QueryRow("SELECT synchronous, foreign_keys FROM pragma_synchronous, pragma_foreign_keys").Scan(&level, &keys); err != nil || level != full || keys != 1 {
			t.Errorf("round %d: after a PRAGMA a transaction has synchronous %d, foreign_keys %d, %v; want %d and 1", round, level, keys, err, full)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if _, err := s.DB().Exec("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DB().Exec("PRAGMA journal_mode = DELETE"); err == nil {
		var mode string
		if err := s.DB().QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("the application has changed the journal to %s, %v", mode, err)
		}
	}
}
