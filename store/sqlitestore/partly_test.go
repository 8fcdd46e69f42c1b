package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// A statement that fails on one row and keeps what it did to those before was done in part. It is never taken for not
// done: the next delivery would do that part again.
func TestAStatementThatFailsInTheMiddleIsNotCalledNotDone(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "partly.db"), nil)
	exec := func(text string) error {
		_, err := s.DB().ExecContext(t.Context(), text)
		return err
	}
	for _, text := range []string{
		"CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))",
		"CREATE TABLE mild (name TEXT PRIMARY KEY ON CONFLICT FAIL)",
		"CREATE TABLE watched (name TEXT PRIMARY KEY)",
		"CREATE TRIGGER watch BEFORE INSERT ON watched WHEN NEW.name = 'c' BEGIN SELECT RAISE(FAIL, 'no c'); END",
	} {
		if err := exec(text); err != nil {
			t.Fatal(err)
		}
	}
	reset := func() {
		t.Helper()
		for _, text := range []string{"DELETE FROM mild", "DELETE FROM watched", "REPLACE INTO account VALUES ('a', 100), ('b', 100), ('c', 5)"} {
			if err := exec(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		text    string
		notDone bool
	}{
		"abort":               {"UPDATE account SET balance = balance - 10", true},
		"rollback":            {"UPDATE OR ROLLBACK account SET balance = balance - 10", true},
		"replace":             {"UPDATE OR REPLACE account SET balance = balance - 10", true}, // a CHECK aborts
		"fail":                {"UPDATE OR FAIL account SET balance = balance - 10", false},
		"fail, returning":     {"UPDATE OR FAIL account SET balance = balance - 10 RETURNING name", false},
		"fail, at once":       {"UPDATE OR FAIL account SET balance = balance - 10 WHERE name = 'c'", true},
		"the table's clause":  {"INSERT INTO mild VALUES ('a'), ('b'), ('a')", false},
		"a trigger":           {"INSERT INTO watched VALUES ('a'), ('b'), ('c')", false},
		"a trigger, at once":  {"INSERT INTO watched VALUES ('c')", true},
		"several statements":  {"INSERT INTO watched VALUES ('a'); INSERT INTO watched VALUES ('a')", true}, // that was done before is not of this one
		"a table that is not": {"INSERT INTO nowhere VALUES (1)", true},
	} {
		reset()
		for how, run := range map[string]func() error{
			"exec": func() error { return exec(c.text) },
			"query": func() error {
				rows, err := s.DB().QueryContext(t.Context(), c.text)
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
				}
				return rows.Err()
			},
			"prepared": func() error {
				stmt, err := s.DB().PrepareContext(t.Context(), c.text)
				if err != nil {
					return err
				}
				defer stmt.Close()
				_, err = stmt.ExecContext(t.Context())
				return err
			},
		} {
			reset()
			err := run()
			if err == nil {
				t.Errorf("%s, %s: it did not fail", name, how)
				continue
			}
			if got := everonce.IsNotDone(sqlitestore.Classify(err)); got != c.notDone {
				t.Errorf("%s, %s: not done: %v, want %v: %v", name, how, got, c.notDone, err)
			}
		}
	}

	// Under Refuse no attempt does it again.
	reset()
	r, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{Classify: sqlitestore.Classify})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for range 2 {
		_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "fees", ID: "may"}, func(ctx context.Context, _ *everonce.Attempt) (int, error) {
			runs++
			return 0, exec("UPDATE OR FAIL account SET balance = balance - 10")
		})
		if !errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Errorf("%v, want ErrOutcomeUnknown", err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
