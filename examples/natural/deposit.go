package natural

import (
	"context"
	"errors"
)

// Deposit is money that came in. Its ID is the bank's, or the sender's: the same in every delivery.
type Deposit struct {
	ID, Account string
	Cents       int64
}

// ErrOtherDeposit says that the ID was used for another deposit.
var ErrOtherDeposit = errors.New("the ID belongs to another deposit")

// ApplyDeposit notes a deposit, in place of adding to a balance: the balance is the sum of what was noted. It
// reports whether this call noted it.
func ApplyDeposit(ctx context.Context, db DB, d Deposit) (bool, error) {
	res, err := db.ExecContext(ctx,
		`INSERT INTO deposit (id, account, cents) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		d.ID, d.Account, d.Cents)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return n == 1, err
	}
	var saved Deposit
	err = db.QueryRowContext(ctx, `SELECT id, account, cents FROM deposit WHERE id = ?`, d.ID).
		Scan(&saved.ID, &saved.Account, &saved.Cents)
	if err == nil && saved != d {
		err = ErrOtherDeposit
	}
	return false, err
}

// Balance is the sum of the deposits.
func Balance(ctx context.Context, db DB, account string) (cents int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT COALESCE(SUM(cents), 0) FROM deposit WHERE account = ?`, account).Scan(&cents)
	return cents, err
}
