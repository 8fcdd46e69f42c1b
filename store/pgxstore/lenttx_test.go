package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The work's first statement begins the transaction, whatever it is, and is answered as pgx answers it. The same holds
// for a first statement behind a savepoint that the work made.
func TestFirstStatement(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	effect := h.schema + ".effect"
	insert := "INSERT INTO " + effect + " VALUES ($1, 1)"
	ctx := t.Context()
	for name, work := range map[string]func(tx pgx.Tx, row string) error{
		"Exec": func(tx pgx.Tx, row string) error {
			tag, err := tx.Exec(ctx, insert, row)
			if tag.RowsAffected() != 1 {
				return fmt.Errorf("%d rows: %w", tag.RowsAffected(), err)
			}
			return err
		},
		"Exec without arguments": func(tx pgx.Tx, row string) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+effect+" VALUES ('"+row+"', 1); SELECT 1")
			return err
		},
		"Exec with an option": func(tx pgx.Tx, row string) error {
			_, err := tx.Exec(ctx, insert, pgx.QueryExecModeExec, row)
			return err
		},
		"Exec with named arguments": func(tx pgx.Tx, row string) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+effect+" VALUES (@name, 1)", pgx.NamedArgs{"name": row})
			return err
		},
		"Query": func(tx pgx.Tx, row string) error {
			rows, err := tx.Query(ctx, insert+" RETURNING name", row)
			if err != nil {
				return err
			}
			names, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err == nil && !slices.Equal(names, []string{row}) {
				return fmt.Errorf("collected %q", names)
			}
			return err
		},
		"Query that is closed early": func(tx pgx.Tx, row string) error {
			rows, err := tx.Query(ctx, "SELECT generate_series(1, $1::int)", 1000)
			if err != nil || !rows.Next() {
				return fmt.Errorf("no row: %w", errors.Join(err, rows.Err()))
			}
			rows.Close()
			if err := rows.Err(); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, insert, row)
			return err
		},
		"QueryRow": func(tx pgx.Tx, row string) (err error) {
			var got string
			if err = tx.QueryRow(ctx, insert+" RETURNING name", row).Scan(&got); err == nil && got != row {
				err = fmt.Errorf("returned %q", got)
			}
			return err
		},
		"QueryRow without a row": func(tx pgx.Tx, row string) error {
			var n int
			if err := tx.QueryRow(ctx, "SELECT n FROM "+effect+" WHERE name = $1", "absent").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("no row is reported as %w", err)
			}
			_, err := tx.Exec(ctx, insert, row)
			return err
		},
		"SendBatch": func(tx pgx.Tx, row string) error {
			var b pgx.Batch
			b.Queue(insert, row)
			b.Queue("SELECT 1").QueryRow(func(r pgx.Row) error { var n int; return r.Scan(&n) })
			return tx.SendBatch(ctx, &b).Close()
		},
		"CopyFrom": func(tx pgx.Tx, row string) error {
			n, err := tx.CopyFrom(ctx, pgx.Identifier{h.schema, "effect"}, []string{"name", "n"}, pgx.CopyFromRows([][]any{{row, int32(1)}}))
			if err == nil && n != 1 {
				return fmt.Errorf("copied %d", n)
			}
			return err
		},
		"Prepare": func(tx pgx.Tx, row string) error {
			if _, err := tx.Prepare(ctx, "own", insert); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "own", row)
			return err
		},
		"Begin": func(tx pgx.Tx, row string) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := inner.Exec(ctx, insert, row); err != nil {
				return err
			}
			return inner.Commit(ctx)
		},
		"Conn": func(tx pgx.Tx, row string) error {
			_, err := tx.Conn().Exec(ctx, insert, row)
			return err
		},
		"LargeObjects": func(tx pgx.Tx, row string) error {
			lo := tx.LargeObjects()
			if oid, err := lo.Create(ctx, 0); err != nil {
				return err
			} else if err := lo.Unlink(ctx, oid); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, insert, row)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 4 {
				commits, inSavepoint := n%2 == 0, n >= 2
				row := fmt.Sprint(name, n)
				handle, _, err := h.store.Begin(ctx, driver.BeginRequest{})
				noErr(t, err)
				if tx := handle.Tx(); inSavepoint {
					inner, err := tx.Begin(ctx)
					noErr(t, err)
					noErr(t, work(inner, row))
					noErr(t, inner.Commit(ctx))
				} else {
					noErr(t, work(tx, row))
				}
				if n := h.effects(t, row); n != 0 {
					t.Errorf("the effect exists before the commit: no transaction was begun")
				}
				want := int64(0)
				if commits {
					want = 1
					noErr(t, errOf(handle.Commit(ctx, driver.CommitRequest{})))
				} else {
					noErr(t, handle.Rollback(ctx))
				}
				if n := h.effects(t, row); n != want {
					t.Errorf("commits: %v: %d effects", commits, n)
				}
			}
		})
	}
}

// A work that goes on after its first statement has failed commits nothing, as with any other failure.
func TestFirstStatementFails(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	ctx := t.Context()
	mustExec(t, "INSERT INTO "+h.schema+".effect VALUES ('taken', 1)")
	for name, text := range map[string]string{
		"where it is prepared": "INSERT INTO " + h.schema + ".missing VALUES ($1)",
		"where it is executed": "INSERT INTO " + h.schema + ".effect VALUES ($1, 1)",
	} {
		t.Run(name, func(t *testing.T) {
			claim := txClaimOf(everonce.Key{Scope: "first", ID: name})
			handle, _, err := h.store.Begin(ctx, driver.BeginRequest{})
			noErr(t, err)
			tx := handle.Tx()
			_, err = tx.Exec(ctx, text, "taken")
			if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
				t.Errorf("the statement answers %v", err)
			}
			var n int
			for what, err := range map[string]error{
				"Exec":     func() error { _, err := tx.Exec(ctx, "SELECT 1"); return err }(),
				"QueryRow": tx.QueryRow(ctx, "SELECT $1::int", 1).Scan(&n),
			} {
				if err == nil {
					t.Errorf("%s goes on after a failure", what)
				}
			}
			done := completionOf(&driver.Record{ID: claim.ID, Nonce: claim.Nonce}, "v")
			_, err = handle.Commit(ctx, driver.CommitRequest{Record: &claim, Complete: &done})
			if err == nil || h.store.ClassifyTx(err) != driver.TxErrorOther {
				t.Errorf("the commit answers %v, of class %d", err, h.store.ClassifyTx(err))
			}
			res, err := h.store.Claim(ctx, claimOf(everonce.Key{Scope: "first", ID: name}))
			decided(t, res, err, driver.DecideClaimed)
		})
	}
}

// Work that commits with its own statement is detected, and does not run again.
func TestWorkThatCommitsByAStatement(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	runs := 0
	_, err = everonce.Transact(t.Context(), receiver, testKey, func(ctx context.Context, tx pgx.Tx) (string, error) {
		runs++
		if err := h.effect(ctx, tx, "charge"); err != nil {
			return "", err
		}
		_, err := tx.Exec(ctx, "COMMIT")
		return "v", err
	})
	if err == nil || runs != 1 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// Work that leaves rows open has surely committed nothing. The error says so, and the work does not run again.
func TestWorkThatLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{conns: 1})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, work := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"QueryRow, first": func(ctx context.Context, tx pgx.Tx) error {
			tx.QueryRow(ctx, "SELECT $1::int", 1)
			return nil
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
			err := h.effect(ctx, tx, "charge")
			tx.QueryRow(ctx, "SELECT $1::int", 1)
			return err
		},
	} {
		for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
			runs := 0
			key := everonce.Key{Scope: "open", ID: fmt.Sprint(name, len(opts))}
			res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
				runs++
				return "v", work(ctx, tx)
			}, opts...)
			if err == nil || res.Outcome != everonce.Failed || errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
				t.Errorf("%s: %v after %d runs, %v", key.ID, res.Outcome, runs, err)
			}
		}
	}
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
}
