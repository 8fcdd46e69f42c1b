package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
)

// A work that leaves rows open runs once, and all that it wrote is committed: the commit closes them.
func TestWorkThatLeavesRowsOpen(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "rows.db"), nil)
	if _, err := s.DB().Exec("CREATE TABLE effect (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	receiver, err := everonce.NewTxReceiver(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	const numbers = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 10000) SELECT x FROM n"
	for name, text := range map[string]string{
		"read": numbers, "written": "INSERT INTO effect SELECT 2 FROM (" + numbers + ") RETURNING n",
	} {
		for in, under := range map[string]func(context.Context) context.Context{
			"the work's context": func(ctx context.Context) context.Context { return ctx },
			"another context":    func(context.Context) context.Context { return t.Context() },
		} {
			for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
				runs := 0
				key := everonce.Key{Scope: "open", ID: fmt.Sprint(name, in, len(opts))}
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
					runs++
					if _, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (1)"); err != nil {
						return "", err
					}
					rows, err := tx.QueryContext(under(ctx), text) //nolint:rowserrcheck // that is the fault
					if err == nil {
						rows.Next()
					}
					return "v", err
				}, opts...)
				if err != nil || res.Outcome != everonce.Executed || runs != 1 {
					t.Errorf("%s: %v after %d runs, %v", key.ID, res.Outcome, runs, err)
				}
			}
		}
	}
	var works, written int
	if err := s.DB().QueryRow("SELECT count(*) FILTER (WHERE n = 1), count(*) FILTER (WHERE n = 2) FROM effect").Scan(&works, &written); err != nil {
		t.Fatal(err)
	}
	if works != 8 || written != 4*10_000 {
		t.Errorf("%d works wrote %d rows", works, written)
	}
}
