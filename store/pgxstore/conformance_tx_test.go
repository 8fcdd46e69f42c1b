package pgxstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/pgxstore"
)

// ledger makes the table of the application's effects in a schema, and returns its name.
func ledger(t testing.TB, schema string) string {
	t.Helper()
	table := pgx.Identifier{schema, "ledger"}.Sanitize()
	mustExec(t, "CREATE TABLE "+table+" (name text NOT NULL)")
	return table
}

func counted(t testing.TB, table string) func(context.Context, string) (int, error) {
	pool := admin(t)
	return func(ctx context.Context, name string) (n int, err error) {
		err = pool.QueryRow(ctx, "SELECT count(*) FROM "+table+" WHERE name = $1", name).Scan(&n)
		return n, err
	}
}

// TestConformanceTx holds the transactions of pgx to the suite.
func TestConformanceTx(t *testing.T) { conformanceTx(t, nil, capabilities()) }

func conformanceTx(t *testing.T, change func(*pgx.ConnConfig), caps drivertest.Capabilities) {
	t.Helper()
	pool := newPool(t, change, conformanceConns)
	drivertest.RunTxWithBugs(t, func(t testing.TB) drivertest.TxHarness[pgx.Tx] {
		schema := newSchema(t)
		table := ledger(t, schema)
		store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		peer, err := pgxstore.New(admin(t), &pgxstore.Options{Schema: schema})
		noErr(t, err)
		exec := func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
			_, err := tx.Exec(ctx, text, args...)
			return err
		}
		return drivertest.TxHarness[pgx.Tx]{
			Harness: harness(t, schema, store, peer),
			Apply: func(ctx context.Context, tx pgx.Tx, name string) error {
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES ($1)", name)
			},
			Count: counted(t, table),
			Begin: func(ctx context.Context) (drivertest.CallerTx[pgx.Tx], error) {
				tx, err := pool.Begin(ctx)
				if err != nil {
					return drivertest.CallerTx[pgx.Tx]{}, err
				}
				return drivertest.CallerTx[pgx.Tx]{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}, nil
			},
			Spoil: func(ctx context.Context, tx pgx.Tx) error {
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES (NULL)")
			},
		}
	}, caps)
}

// TestConformanceTxSQL holds the transactions of database/sql to the suite.
func TestConformanceTxSQL(t *testing.T) { conformanceTxSQL(t, nil, capabilities()) }

func conformanceTxSQL(t *testing.T, change func(*pgx.ConnConfig), caps drivertest.Capabilities) {
	t.Helper()
	db := newDB(t, change)
	db.SetMaxOpenConns(conformanceConns)
	db.SetMaxIdleConns(conformanceConns)
	drivertest.RunTxWithBugs(t, func(t testing.TB) drivertest.TxHarness[*sql.Tx] {
		schema := newSchema(t)
		table := ledger(t, schema)
		store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: schema})
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		peer, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: schema})
		noErr(t, err)
		exec := func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
			_, err := tx.ExecContext(ctx, text, args...)
			return err
		}
		return drivertest.TxHarness[*sql.Tx]{
			Harness: harness(t, schema, store, peer),
			Apply: func(ctx context.Context, tx *sql.Tx, name string) error {
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES ($1)", name)
			},
			Count: counted(t, table),
			Begin: func(ctx context.Context) (drivertest.CallerTx[*sql.Tx], error) {
				tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
				if err != nil {
					return drivertest.CallerTx[*sql.Tx]{}, err
				}
				return drivertest.CallerTx[*sql.Tx]{
					Tx:       tx,
					Commit:   func(context.Context) error { return tx.Commit() },
					Rollback: func(context.Context) error { return tx.Rollback() },
				}, nil
			},
			Spoil: func(ctx context.Context, tx *sql.Tx) error {
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES (NULL)")
			},
		}
	}, caps)
}
