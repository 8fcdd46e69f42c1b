package shop

import (
	"context"
	"database/sql"
	"fmt"
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

// Audit counts what really happened, from the ledgers alone: the service's database and the file of the e-mail
// gateway. It asks no program that took part. Ledgers that contradict each other, or the balances, are an error.
func Audit(ctx context.Context, books *sql.DB, mails string) (Count, error) {
	charges, err := Charges(ctx, books)
	if err != nil {
		return Count{}, fmt.Errorf("the service's ledger: %w", err)
	}
	sent, err := ReadMails(mails)
	if err != nil {
		return Count{}, err
	}
	c := Count{Operations: len(charges)}
	for order, ids := range sent {
		if _, known := charges[order]; !known {
			return c, fmt.Errorf("the gateway's ledger has a mail for %q, which is no order", order)
		}
		c.Mails += len(ids)
	}
	for order, n := range charges {
		c.Effects += n
		count(n, &c.Doubled, &c.Lost)
		count(len(sent[order]), &c.MailsDoubled, &c.MailsLost)
	}
	return c, reconcile(ctx, books, c.Effects)
}

// count counts an effect that happened n times.
func count(n int, doubled, lost *int) {
	switch {
	case n > 1:
		*doubled++
	case n == 0:
		*lost++
	}
}

// reconcile compares the balances with the ledger, account by account.
func reconcile(ctx context.Context, books *sql.DB, effects int) error {
	var entries, off int
	err := books.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM ledger), (
		SELECT COUNT(*) FROM accounts a
		WHERE a.balance <> ? - (SELECT COALESCE(SUM(l.amount), 0) FROM ledger l WHERE l.account = a.name))`,
		initialBalance).Scan(&entries, &off)
	switch {
	case err != nil:
		return fmt.Errorf("the service's ledger: %w", err)
	case entries != effects:
		return fmt.Errorf("%d charges are of no order", entries-effects)
	case off > 0:
		return fmt.Errorf("the balances of %d accounts are not what their charges say", off)
	}
	return nil
}
