package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
)

// Through database/sql too, work that leaves rows open has surely committed nothing. The error says so, and the work
// does not run again. Its connection, through which nothing can be sent, is not broken.
func TestWorkThatLeavesRowsOpenSQL(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			testRowsLeftOpen(t, newSQL(t, setup{conns: 2, config: func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode }}))
		})
	}
}

func testRowsLeftOpen(t *testing.T, h *handle[*sql.Tx]) {
	t.Helper()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, text := range map[string]string{"little": "SELECT $1::int", "much": "SELECT repeat('x', 1000) FROM generate_series(1, $1::int)"} {
		for in, under := range map[string]func(context.Context) context.Context{
			"the work's context": func(ctx context.Context) context.Context { return ctx },
			"another context":    func(context.Context) context.Context { return t.Context() },
		} {
			for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
				runs := 0
				key := everonce.Key{Scope: "open", ID: fmt.Sprint(name, in, len(opts))}
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
					runs++
					if err := h.effect(ctx, tx, "charge"); err != nil {
						return "", err
					}
					_, err := tx.QueryContext(under(ctx), text, 20_000) //nolint:rowserrcheck // that is the fault
					return "v", err
				}, opts...)
				if err == nil || res.Outcome != everonce.Failed || errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
					t.Errorf("%s: %v after %d runs, %v", key.ID, res.Outcome, runs, err)
				}
			}
		}
	}
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
}
