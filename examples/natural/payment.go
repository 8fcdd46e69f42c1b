package natural

import (
	"context"
	"errors"

	"github.com/everonce/everonce/store/sqlitestore"
)

// Payment is the payment of an order, of which there is one.
type Payment struct {
	ID, Order string
	Cents     int64
}

// ErrOtherAmount says that the order is paid, with another amount.
var ErrOtherAmount = errors.New("the order is paid with another amount")

// Pay books the payment of an order, and returns it; or returns the payment that was booked before, and reports which.
// The unique constraint on order_id, in the business table itself, makes it once.
func Pay(ctx context.Context, db DB, p Payment) (booked Payment, first bool, err error) {
	booked, first, err = sqlitestore.InsertOnce(ctx, db, sqlitestore.Insert{
		Table:     "payment",
		Columns:   []string{"id", "order_id", "cents"},
		Values:    []any{p.ID, p.Order, p.Cents},
		Key:       []string{"order_id"},
		Returning: []string{"id", "order_id", "cents"},
	}, func(row sqlitestore.Row) (p Payment, err error) {
		err = row.Scan(&p.ID, &p.Order, &p.Cents)
		return p, err
	})
	if err == nil && booked.Cents != p.Cents {
		err = ErrOtherAmount
	}
	return booked, first, err
}
