package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// A statement that rides on a commit must itself fail where it writes nothing, and only there: in a batch that goes on
// to commit, nothing else can stop it.
func TestStatementsThatMustWrite(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	table := schema + ".thing"
	mustExec(t, "CREATE TABLE "+table+" (id int PRIMARY KEY, n int)")
	for name, c := range map[string]struct {
		text    string
		nothing string // what makes it write nothing
	}{
		"an update":                  {"UPDATE " + table + " SET n = n + 1 WHERE id = $1::int RETURNING 1", "DELETE FROM " + table},
		"an insert or update":        {"INSERT INTO " + table + " AS t VALUES ($1::int, 1) ON CONFLICT (id) DO UPDATE SET n = 2 WHERE t.n = 1 RETURNING 1", "UPDATE " + table + " SET n = 3"},
		"an insert that finds a row": {"INSERT INTO " + table + " SELECT $1::int, 1 FROM (SELECT 1) AS c WHERE $1::int > 0 ON CONFLICT (id) DO NOTHING RETURNING 1", ""},
		"an insert that may not": {
			"INSERT INTO " + table + " SELECT $1::int, 1 FROM (SELECT 1) AS c WHERE NOT EXISTS (SELECT FROM " + schema + ".effect) ON CONFLICT (id) DO NOTHING RETURNING 1",
			"DELETE FROM " + table + "; INSERT INTO " + schema + ".effect VALUES ('x', 1)",
		},
		"a writing expression": {
			"WITH w AS (UPDATE " + table + " SET n = n + 1 WHERE id = $1::int RETURNING id), o AS (INSERT INTO " + schema + ".effect SELECT 'o', 1 FROM w RETURNING 1) SELECT 1 FROM w",
			"DELETE FROM " + table + "; DELETE FROM " + schema + ".effect",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := pgxstore.Failing(c.text)
			run := func() error {
				tx, err := admin(t).Begin(t.Context())
				noErr(t, err)
				defer tx.Rollback(t.Context()) //nolint:errcheck // it only tries
				var b pgx.Batch
				b.Queue(text, 7)
				b.Queue("INSERT INTO " + schema + ".effect VALUES ('committed', 1)")
				return tx.SendBatch(t.Context(), &b).Close()
			}
			mustExec(t, "TRUNCATE "+table)
			mustExec(t, "DELETE FROM "+schema+".effect")
			if name[:9] != "an insert" {
				mustExec(t, "INSERT INTO "+table+" VALUES (7, 1)")
			}
			noErr(t, run())
			mustExec(t, "INSERT INTO "+table+" VALUES (7, 1) ON CONFLICT DO NOTHING")
			if c.nothing != "" {
				mustExec(t, c.nothing)
			}
			pgErr, ok := errors.AsType[*pgconn.PgError](run())
			if !ok || pgErr.Code != "22P02" && pgErr.Code != "23505" {
				t.Errorf("writing nothing answers %v", pgErr)
			}
		})
	}
}

// PostgreSQL keeps one plan for each statement of the frequent ways, and does not make a new one every time.
func TestGenericPlans(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{conns: 1})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	guarded, err := everonce.NewReceiver(h.store, everonce.Refuse, nil)
	noErr(t, err)
	const runs = 20
	for range runs {
		id := random(t)
		work := func(ctx context.Context, tx pgx.Tx) (string, error) { return "v", h.effect(ctx, tx, "plans") }
		for range 2 {
			_, err = everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "first", ID: id}, work)
			noErr(t, err)
			_, err = everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "optimistic", ID: id}, work, everonce.Optimistic())
			noErr(t, err)
			_, err = everonce.Do(t.Context(), guarded, everonce.Key{Scope: "guarded", ID: id}, func(context.Context, *everonce.Attempt) (string, error) { return "v", nil })
			noErr(t, err)
		}
	}
	tx, err := h.begin(t.Context(), 0)
	noErr(t, err)
	defer h.abort(t.Context(), tx) //nolint:errcheck // it has only read
	rows, err := tx.Query(t.Context(), "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements WHERE generic_plans + custom_plans >= $1", runs)
	noErr(t, err)
	seen := 0
	var text string
	var generic, custom int64
	_, err = pgx.ForEachRow(rows, []any{&text, &generic, &custom}, func() error {
		if seen++; custom > runs/2 {
			t.Errorf("planned %d times of %d: %s", custom, generic+custom, text)
		}
		return nil
	})
	noErr(t, err)
	if seen < 8 {
		t.Errorf("only %d statements were run often", seen)
	}
}
