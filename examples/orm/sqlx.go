package orm

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/everonce/everonce"
)

// ChargeBySQLX makes a charge in a transaction of sqlx.
func ChargeBySQLX(ctx context.Context, db *sqlx.DB, r *Receiver, c Charge) (everonce.Result[Receipt], error) {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return everonce.Result[Receipt]{}, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing left to roll back

	res, err := everonce.DoTx(ctx, tx.Tx, r, c.key(), func(ctx context.Context) (Receipt, error) {
		update := tx.Rebind(`UPDATE account SET cents = cents - ? WHERE id = ? AND cents >= ?`)
		done, err := tx.ExecContext(ctx, update, c.Cents, c.Account, c.Cents)
		if err != nil {
			return Receipt{}, err
		}
		return c.receipt(), enough(done.RowsAffected())
	}, c.fingerprint())

	if !keep(res.Outcome, err) {
		return res, err
	}
	if failed := tx.Commit(); failed != nil {
		return everonce.Result[Receipt]{}, failed
	}
	return res, err
}
