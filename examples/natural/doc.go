// Package natural holds operations that are idempotent by their shape: however often they arrive, the
// database is left as after the first, and no record of the operation is needed. The page
// docs/how-to/natural-idempotency.md explains each.
//
// They are written for SQLite, through database/sql; the statements that PostgreSQL and MySQL spell
// otherwise are named in the page.
package natural

import (
	"context"
	"database/sql"
)

// DB is a *sql.DB, *sql.Conn or *sql.Tx: each shape is one statement, or says that it needs a transaction.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Schema is what the shapes need. Most of what makes them idempotent is in its keys.
const Schema = `
CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0);
CREATE TABLE profile (id TEXT PRIMARY KEY, name TEXT NOT NULL, mail TEXT NOT NULL);
CREATE TABLE cart_line (cart TEXT, product TEXT, quantity INTEGER NOT NULL, PRIMARY KEY (cart, product));
CREATE TABLE comment (id TEXT PRIMARY KEY, post TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE stock (product TEXT PRIMARY KEY, on_hand INTEGER NOT NULL);
CREATE TABLE reservation (order_id TEXT, product TEXT, quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product));
CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, shipped_at TEXT);
CREATE TABLE deposit (id TEXT PRIMARY KEY, account TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE payment (id TEXT PRIMARY KEY, order_id TEXT NOT NULL UNIQUE, cents INTEGER NOT NULL);
`
