package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mysqlstore"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// app is a payment service's own data, in the database that also holds the records: one account and a
// ledger, and the charge that is not idempotent.
type app[Tx any] struct {
	store   driver.TxStore[Tx]
	db      *sql.DB                                                           // where it stands on one
	exec    func(ctx context.Context, tx Tx, query string, args ...any) error // in SQL
	charges func(ctx context.Context, tx Tx, op int) error                    // elsewhere
	begin   func(ctx context.Context) (Tx, error)
	commit  func(ctx context.Context, tx Tx) error
	discard func(ctx context.Context, tx Tx)
	close   func()
}

const appSchema = `
CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (op BIGINT NOT NULL);
INSERT INTO account (id, balance) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM account);
`

// charge takes one from the account, and writes it into the ledger: twice means two.
func (a *app[Tx]) charge(ctx context.Context, tx Tx, op int) error {
	if a.charges != nil {
		return a.charges(ctx, tx, op)
	}
	if err := a.exec(ctx, tx, `UPDATE account SET balance = balance - 1 WHERE id = 1`); err != nil {
		return err
	}
	return a.exec(ctx, tx, `INSERT INTO ledger (op) VALUES (`+strconv.Itoa(op)+`)`)
}

func openSQLite(ctx context.Context, path string) (*app[*sql.Tx], error) {
	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return sqlApp(ctx, store, store.DB(), func() { _ = store.Close() })
}

// mariaDB returns a handle on a database of a server, or on none.
func mariaDB(url, database string) (*sql.DB, error) {
	cfg, err := mysqlstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.DBName = database
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(24)
	db.SetMaxIdleConns(24)
	return db, nil
}

func openMariaDB(ctx context.Context, url, database string) (*app[*sql.Tx], error) {
	db, err := mariaDB(url, database)
	if err != nil {
		return nil, err
	}
	store, err := mysqlstore.New(db, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return sqlApp(ctx, store, db, func() { _ = db.Close() })
}

// sqlApp makes the service's tables through database/sql.
func sqlApp(ctx context.Context, store driver.TxStore[*sql.Tx], db *sql.DB, end func()) (*app[*sql.Tx], error) {
	for _, stmt := range strings.Split(strings.TrimSpace(appSchema), ";\n") {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
	}
	return &app[*sql.Tx]{
		store: store, db: db,
		exec: func(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		},
		begin:   func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(context.WithoutCancel(ctx), nil) },
		commit:  func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		discard: func(_ context.Context, tx *sql.Tx) { _ = tx.Rollback() },
		close:   end,
	}, nil
}

func openPostgres(ctx context.Context, url, schema string) (*app[pgx.Tx], error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the PostgreSQL URL does not parse")
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return &app[pgx.Tx]{
		store: store,
		exec: func(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		},
		begin:   func(ctx context.Context) (pgx.Tx, error) { return pool.Begin(context.WithoutCancel(ctx)) },
		commit:  func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(context.WithoutCancel(ctx)) },
		discard: func(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(context.WithoutCancel(ctx)) },
		close:   pool.Close,
	}, nil
}
