package shop

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// initialBalance is what every account begins with, in cents.
const initialBalance = 1_000_000_00

// schema is the business data. It has no idempotency keys: a second charge of an order goes through.
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

func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Create makes the tables and enters the orders that are to be paid.
func Create(ctx context.Context, db *sql.DB, payments []Payment) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		for _, p := range payments {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO accounts (name, balance) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
				INSERT INTO orders (id, account, amount, state) VALUES (?3, ?1, ?4, 'open')`, p.Account, initialBalance, p.Order, p.Amount); err != nil {
				return err
			}
		}
		return nil
	})
}

// charge takes the money, and returns the charge's number in the ledger. It is of the kind that is not
// idempotent: done twice, the money is gone twice.
func charge(ctx context.Context, tx *sql.Tx, p Payment) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `INSERT INTO ledger (order_id, account, amount) SELECT id, account, ? FROM orders WHERE id = ? AND account = ? RETURNING id`,
		p.Amount, p.Order, p.Account).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("charge %s to %s: %w", p.Order, p.Account, err)
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE accounts SET balance = balance - ?1 WHERE name = ?2;
		UPDATE orders SET state = 'paid' WHERE id = ?3`, p.Amount, p.Account, p.Order)
	return id, err
}

// Charges returns how often each order was charged.
func Charges(ctx context.Context, db *sql.DB) (map[string]int, error) {
	rows, err := db.QueryContext(ctx, `SELECT o.id, COUNT(l.id) FROM orders o LEFT JOIN ledger l ON l.order_id = o.id GROUP BY o.id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	charges := make(map[string]int)
	for rows.Next() {
		var order string
		var n int
		if err := rows.Scan(&order, &n); err != nil {
			return nil, err
		}
		charges[order] = n
	}
	return charges, rows.Err()
}
