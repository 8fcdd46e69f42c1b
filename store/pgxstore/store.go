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

// New returns a store on the database of pool. The caller keeps the pool and closes it. New sends nothing: call
// [sqlstore.Store.Migrate] once before the first use.
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	d, err := newPgxDriver(pool, opts)
	if err != nil {
		return nil, err
	}
	return sqlstore.New[pgx.Tx](d), nil
}

// NewSQL returns a store on the database of db: one opened by pgx's stdlib, or by another driver whose errors wrap a
// *pgconn.PgError. The caller keeps db and closes it. The store takes more round trips than one returned by [New],
// because database/sql cannot pipeline. Both may be used on the same tables at once.
func NewSQL(db *sql.DB, opts *Options) (*SQLStore, error) {
	d, err := newSQLDriver(db, opts)
	if err != nil {
		return nil, err
	}
	return sqlstore.New[*sql.Tx](d), nil
}
