// Package audit counts what really happened, from the ledgers alone: the service's database and the file
// of the e-mail gateway. It asks no program that took part.
package audit

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
)

// Count is what the ledgers of one run say.
type Count struct {
	// Operations is how many orders were to be paid.
	Operations int
	// Effects is how many charges there are; Doubled and Lost are how many orders were charged more than
	// once, and never.
	Effects, Doubled, Lost int
	// Mails is how many mails were sent; MailsDoubled and MailsLost are how many orders had more than
	// one, and none.
	Mails, MailsDoubled, MailsLost int
}

// Ledgers reads both ledgers.
func Ledgers(ctx context.Context, books *sql.DB, mails string) (Count, error) {
	c, charges, err := charges(ctx, books)
	if err != nil {
		return c, fmt.Errorf("the service's ledger: %w", err)
	}
	sent, err := gateway.ReadLedger(mails)
	if err != nil {
		return c, err
	}
	perOrder := make(map[string]int, len(charges))
	for _, m := range sent {
		if _, known := charges[m.Order]; !known {
			return c, fmt.Errorf("the gateway's ledger has a mail for %q, which is no order", m.Order)
		}
		perOrder[m.Order]++
	}
	c.Mails = len(sent)
	for order, n := range charges {
		switch {
		case n > 1:
			c.Doubled++
		case n == 0:
			c.Lost++
		}
		switch n := perOrder[order]; {
		case n > 1:
			c.MailsDoubled++
		case n == 0:
			c.MailsLost++
		}
	}
	return c, nil
}

// charges returns how often each order was charged. The money must tell the same as the ledger.
func charges(ctx context.Context, books *sql.DB) (c Count, perOrder map[string]int, err error) {
	rows, err := books.QueryContext(ctx, `SELECT o.id, COUNT(l.id) FROM orders o LEFT JOIN ledger l ON l.order_id = o.id GROUP BY o.id`)
	if err != nil {
		return c, nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	perOrder = make(map[string]int)
	for rows.Next() {
		var order string
		var n int
		if err := rows.Scan(&order, &n); err != nil {
			return c, nil, err
		}
		perOrder[order] = n
		c.Operations++
		c.Effects += n
	}
	if err := rows.Err(); err != nil {
		return c, nil, err
	}
	if err := rows.Close(); err != nil {
		return c, nil, err
	}
	return c, perOrder, reconcile(ctx, books, c.Effects)
}

// reconcile compares the balances with the ledger, account by account.
func reconcile(ctx context.Context, books *sql.DB, effects int) error {
	var entries, off int
	err := books.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM ledger), (
		SELECT COUNT(*) FROM accounts a
		WHERE a.balance <> ? - (SELECT COALESCE(SUM(l.amount), 0) FROM ledger l WHERE l.account = a.name))`,
		service.InitialBalance).Scan(&entries, &off)
	switch {
	case err != nil:
		return err
	case entries != effects:
		return fmt.Errorf("%d charges are of no order", entries-effects)
	case off > 0:
		return fmt.Errorf("the balances of %d accounts are not what their charges say", off)
	}
	return nil
}
