package pgxstore

import (
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/internal/sqlstore"
)

// Store keeps records in PostgreSQL, and commits them together with what the application writes through a pgx.Tx. It
// is safe for concurrent use. Its methods are documented at [sqlstore.Store].
type Store = sqlstore.Store[pgx.Tx]

// SQLStore is a [Store] for applications that write through a *sql.Tx.
type SQLStore = sqlstore.Store[*sql.Tx]

// New makes a store that uses the database through pool, which stays the caller's to close. It sends nothing: call
// [sqlstore.Store.Migrate] once before the first use.
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	d, err := newPgxDriver(pool, opts)
	if err != nil {
		return nil, err
	}
	return sqlstore.New[pgx.Tx](d), nil
}

// NewSQL makes a store that uses the database through db: one opened by pgx's stdlib, or any other whose errors wrap
// a *pgconn.PgError. db stays the caller's to close. The store takes more round trips than one made by [New], because
// database/sql cannot pipeline. Both may be used on the same tables at once.
func NewSQL(db *sql.DB, opts *Options) (*SQLStore, error) {
	d, err := newSQLDriver(db, opts)
	if err != nil {
		return nil, err
	}
	return sqlstore.New[*sql.Tx](d), nil
}
