package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

// ledger is a table that each participant has: what it did for which order, as the audit reads it.
const ledger = `CREATE TABLE IF NOT EXISTS ledger (order_id TEXT NOT NULL, what TEXT NOT NULL, amount BIGINT NOT NULL)`

// book writes a line into the ledger.
func book(ctx context.Context, tx *sql.Tx, what string, o *Order, amount int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger VALUES ($1, $2, $3)`, o.ID, what, amount)
	return err
}

// inStock is the initial quantity of each item: enough.
const inStock = 1_000_000

// works are the participants' by their names.
var works = map[string]work{
	"stock": {
		tables: []string{
			ledger, `CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, free BIGINT NOT NULL)`,
			fmt.Sprintf(`INSERT INTO stock VALUES ('book', %d), ('lamp', %[1]d), ('chair', %[1]d) ON CONFLICT DO NOTHING`, inStock),
		},
		act: func(ctx context.Context, tx *sql.Tx, o *Order) (string, error) {
			return "reserved", errors.Join(move(ctx, tx, o.Item, -o.Quantity), book(ctx, tx, "reserve", o, o.Quantity))
		},
		undo: func(ctx context.Context, tx *sql.Tx, o *Order) error {
			return errors.Join(move(ctx, tx, o.Item, o.Quantity), book(ctx, tx, "release", o, o.Quantity))
		},
	},
	"payment": {
		tables: []string{ledger},
		act: func(ctx context.Context, tx *sql.Tx, o *Order) (string, error) {
			if o.Card == declinedCard {
				return "", everonce.Permanent("declined", errors.New("the card is declined"), nil)
			}
			return "paid", book(ctx, tx, "charge", o, o.Cents)
		},
		undo: func(ctx context.Context, tx *sql.Tx, o *Order) error { return book(ctx, tx, "refund", o, o.Cents) },
	},
	"shipping": {
		tables: []string{ledger},
		act: func(ctx context.Context, tx *sql.Tx, o *Order) (string, error) {
			if o.Country == nowhere {
				return "", everonce.Permanent("address", errors.New("no carrier delivers there"), nil)
			}
			return "shipped", book(ctx, tx, "ship", o, o.Quantity)
		},
		undo: func(ctx context.Context, tx *sql.Tx, o *Order) error { return book(ctx, tx, "cancel", o, o.Quantity) },
	},
}

func move(ctx context.Context, tx *sql.Tx, item string, by int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE stock SET free = free + $1 WHERE item = $2`, by, item)
	return err
}
