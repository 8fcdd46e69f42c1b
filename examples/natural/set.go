package natural

import "context"

// SetBalance sets a balance to what it is to be. Sent again, it changes nothing.
func SetBalance(ctx context.Context, db DB, account string, cents int64) error {
	_, err := db.ExecContext(ctx, `UPDATE account SET balance = ? WHERE id = ?`, cents, account)
	return err
}

// SetBalanceIfNewer sets a balance unless a later version of it has come already: a duplicate that arrives
// after a later message does not bring the old value back. It reports whether it was set.
func SetBalanceIfNewer(ctx context.Context, db DB, account string, cents, version int64) (bool, error) {
	res, err := db.ExecContext(ctx,
		`UPDATE account SET balance = ?, version = ? WHERE id = ? AND version < ?`,
		cents, version, account, version)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
