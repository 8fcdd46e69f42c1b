package service

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// InitialBalance is what every account begins with, in cents.
const InitialBalance = 1_000_000_00

// schema is the business: nothing in it knows of idempotency. A second charge of an order goes through.
const schema = `
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE orders (id TEXT PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id TEXT NOT NULL, account TEXT NOT NULL, amount INTEGER NOT NULL);
`

// OpenBooks opens the service's database.
func OpenBooks(path string) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // there is one writer
	return db, nil
}

// Create makes the tables and enters the orders that are to be paid.
func Create(ctx context.Context, db *sql.DB, payments []payment.Payment) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	for _, p := range payments {
		if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (name, balance) VALUES (?, ?) ON CONFLICT DO NOTHING`, p.Account, InitialBalance); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, account, amount, state) VALUES (?, ?, ?, 'open')`, p.Order, p.Account, p.Amount); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// charge takes the money, and returns the charge's number in the ledger. It is of the kind that is not
// idempotent: done twice, the money is gone twice.
func charge(ctx context.Context, tx *sql.Tx, p payment.Payment) (int64, error) {
	for _, do := range []struct {
		text string
		args []any
	}{
		{`UPDATE accounts SET balance = balance - ? WHERE name = ?`, []any{p.Amount, p.Account}},
		{`UPDATE orders SET state = 'paid' WHERE id = ?`, []any{p.Order}},
	} {
		res, err := tx.ExecContext(ctx, do.text, do.args...)
		if err != nil {
			return 0, err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return 0, fmt.Errorf("no such account or order (%d rows): %w", n, err)
		}
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO ledger (order_id, account, amount) VALUES (?, ?, ?)`, p.Order, p.Account, p.Amount)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// Charged returns the orders that are in the ledger.
func Charged(ctx context.Context, db *sql.DB) (map[string]bool, error) {
	rows, err := db.QueryContext(ctx, `SELECT DISTINCT order_id FROM ledger`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	charged := map[string]bool{}
	for rows.Next() {
		var order string
		if err := rows.Scan(&order); err != nil {
			return nil, err
		}
		charged[order] = true
	}
	return charged, rows.Err()
}
