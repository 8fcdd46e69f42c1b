package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// No statement but the count of all records, and the search for an ID in all scopes, looks at every one of them, or
// sorts what it finds: what looks at many has an index.
func TestStatementsUseTheirIndexes(t *testing.T) {
	s := openTest(t, nil)
	statements := s.db.Statements()
	index := map[*sqldb.Statement]string{
		statements.PurgeRecords: "record_due", statements.PurgeResults: "record_due", statements.PurgeSteps: "record_due", statements.PurgePassed: "record_due",
		statements.ListOpen: "record_open",
	}
	for _, statement := range statements.All() {
		if strings.HasPrefix(statement.Text, "CREATE") {
			continue
		}
		plan := planOf(t, s.DB(), statement.Text)
		if statement != statements.Health && statement != statements.ListName && strings.Contains(plan, "SCAN") ||
			statement != statements.ReadSteps && strings.Contains(plan, "TEMP B-TREE") { // there are few steps of one record
			t.Errorf("%s:\n%s", statement.Name, plan)
		}
		if want := index[statement]; !strings.Contains(plan, want) {
			t.Errorf("%s is not by %s:\n%s", statement.Name, want, plan)
		}
	}
}

// The search for an ID in all scopes reads the records as they lie, and not in the order of their hashes: that would be
// another page for each.
func TestAnIDIsLookedForWhereTheRecordsLie(t *testing.T) {
	c := &counting{database: openTest(t, nil).db}
	s := sqlstore.New[*sql.Tx](c)
	if plan := planOf(t, c.db, c.Statements().ListName.Text); !strings.Contains(plan, "SCAN r\n") || strings.Contains(plan, "SCAN r USING") {
		t.Errorf("the plan is\n%s", plan)
	}
	for _, look := range []struct {
		req  driver.ListRequest
		want string
	}{
		{driver.ListRequest{Name: "7"}, "reader:list_name"},
		{driver.ListRequest{Name: "7", Scope: "s"}, "reader:list_key"},
		{driver.ListRequest{Name: "7", KeyHash: driver.KeyHash{1}}, "reader:list_key"},
		{driver.ListRequest{KeyHash: driver.KeyHash{1}}, "reader:list_key"},
	} {
		_, err := s.List(t.Context(), driver.ListRequest{}) // the first call of a store asks more
		c.take()
		if err == nil {
			_, err = s.List(t.Context(), look.req)
		}
		if got := c.take(); err != nil || got != look.want {
			t.Errorf("%+v: %q, %v; want %q", look.req, got, err, look.want)
		}
	}
}

// A call that may read every record ends with its context, in the middle of a statement.
func TestALongReadEndsWithItsContext(t *testing.T) {
	s := openTest(t, nil)
	if _, err := s.DB().ExecContext(t.Context(), `INSERT INTO everonce_record (id, scope, name, state, token, nonce, owner, attempt, rev, steps, format, created_at, updated_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT CAST(printf('%032d', i) AS BLOB), 's', 'n', 3, 1, zeroblob(16), '', 1, 1, 0, 1, 1, 1 FROM n`); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, err := s.List(ctx, driver.ListRequest{States: []driver.State{driver.StateTombstone}})
			return err
		},
		"list open": func(ctx context.Context) error {
			_, err := s.List(ctx, driver.ListRequest{States: []driver.State{driver.StateReleased}})
			return err
		},
		"list key": func(ctx context.Context) error {
			_, err := s.List(ctx, driver.ListRequest{KeyHash: driver.KeyHash{1}})
			return err
		},
		"list name": func(ctx context.Context) error {
			_, err := s.List(ctx, driver.ListRequest{Name: "7"})
			return err
		},
		"health": func(ctx context.Context) error { _, err := s.Health(ctx, driver.HealthRequest{}); return err },
	} {
		if err := read(t.Context()); err != nil {
			t.Fatal(name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want that its time is over", name, err)
		}
		cancel()
	}
}

func planOf(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	args := make([]any, strings.Count(text, "?")+strings.Count(text, "$")) // at least as many as there are
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatal(text, err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// A list in which nothing is completed is looked for among what is not.
func TestListOfWhatIsOpen(t *testing.T) {
	c := &counting{database: openTest(t, nil).db}
	s := sqlstore.New[*sql.Tx](c)
	if _, err := s.List(t.Context(), driver.ListRequest{}); err != nil { // the first call of a store asks more
		t.Fatal(err)
	}
	for _, row := range []struct {
		states []driver.State
		want   string
	}{
		{nil, "reader:list"},
		{[]driver.State{driver.StateAbandoned}, "reader:list_open"},
		{[]driver.State{driver.StateClaimed, driver.StateReleased}, "reader:list_open"},
		{[]driver.State{driver.StateAbandoned, driver.StateCompleted}, "reader:list"},
		{[]driver.State{driver.StateTombstone}, "reader:list"},
		{[]driver.State{driver.StateAbandoned, 0}, "reader:list"}, // what is damaged may be completed
	} {
		c.take()
		if _, err := s.List(t.Context(), driver.ListRequest{States: row.states}); err != nil {
			t.Fatal(err)
		}
		if got := c.take(); got != row.want {
			t.Errorf("%v: %q, want %q", row.states, got, row.want)
		}
	}
}
