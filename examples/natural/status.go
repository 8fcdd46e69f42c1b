package natural

import (
	"context"
	"errors"
	"fmt"
)

// ErrWrongStatus says that an order is where it cannot be shipped from.
var ErrWrongStatus = errors.New("wrong status")

// Ship moves an order on, from the states where that can be done. The second finds it done.
func Ship(ctx context.Context, db DB, order string) error {
	res, err := db.ExecContext(ctx,
		`UPDATE orders SET status = 'shipped' WHERE id = ? AND status IN ('paid', 'packed')`, order)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	var status string
	if err := db.QueryRowContext(ctx, `SELECT status FROM orders WHERE id = ?`, order).Scan(&status); err != nil {
		return err
	}
	switch status {
	case "shipped", "delivered": // by an earlier delivery of this message
		return nil
	}
	return fmt.Errorf("%w: order %s is %s", ErrWrongStatus, order, status)
}

// MarkShipped notes when an order was shipped first, and returns that.
func MarkShipped(ctx context.Context, db DB, order string) (at string, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE orders SET shipped_at = COALESCE(shipped_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
		 WHERE id = ? RETURNING shipped_at`, order).Scan(&at)
	return at, err
}
