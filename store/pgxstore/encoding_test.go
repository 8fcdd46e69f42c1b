package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// A key that the encoding of the database cannot hold is refused, and nothing is done under it. Others are as they were
// sent.
func TestADatabaseInAnotherEncoding(t *testing.T) {
	t.Parallel()
	name := "latin1_" + random(t)
	mustExec(t, "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { mustExec(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	pool := newPool(t, func(c *pgx.ConnConfig) {
		c.Database = name
		c.RuntimeParams["client_encoding"] = "UTF8"
	}, 2)
	store, err := pgxstore.New(pool, nil)
	noErr(t, err)
	noErr(t, store.Migrate(t.Context()))
	_, err = pool.Exec(t.Context(), "CREATE TABLE effect (n int)")
	noErr(t, err)
	receiver, err := everonce.NewTxReceiver(store, nil)
	noErr(t, err)
	for _, c := range []struct {
		id            string
		first, second everonce.Outcome
		effects       int
	}{{"Müller", everonce.Executed, everonce.Replayed, 1}, {"日本", everonce.Failed, everonce.Failed, 0}} {
		for _, want := range []everonce.Outcome{c.first, c.second} {
			res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "encoding", ID: c.id}, func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", 1)
				return "v", err
			})
			if res.Outcome != want || want == everonce.Failed && !errors.Is(err, driver.ErrStore) {
				t.Errorf("%s: %v, %v; want %v", c.id, res.Outcome, err, want)
			}
		}
		var n int
		noErr(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&n))
		if n != c.effects {
			t.Errorf("%s: %d effects, want %d", c.id, n, c.effects)
		}
		_, err = pool.Exec(t.Context(), "DELETE FROM effect")
		noErr(t, err)
	}
}
