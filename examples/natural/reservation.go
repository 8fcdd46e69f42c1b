package natural

import (
	"context"
	"database/sql"
	"errors"
)

var (
	// ErrOutOfStock says that there are not enough left.
	ErrOutOfStock = errors.New("out of stock")
	// ErrOtherQuantity says that the order has reserved the product, in another quantity.
	ErrOtherQuantity = errors.New("reserved in another quantity")
)

// Reserve takes goods out of the stock for an order: it inserts a row, instead of decrementing a number. The available
// quantity is the stock without the reservations.
func Reserve(ctx context.Context, db DB, order, product string, quantity int) error {
	var reserved int
	err := db.QueryRowContext(ctx,
		`INSERT INTO reservation (order_id, product, quantity)
		 SELECT ?1, product, ?3 FROM stock WHERE product = ?2 AND (
		     on_hand - (SELECT COALESCE(SUM(quantity), 0) FROM reservation WHERE product = ?2) >= ?3
		     OR EXISTS (SELECT 1 FROM reservation WHERE order_id = ?1 AND product = ?2))
		 ON CONFLICT (order_id, product) DO UPDATE SET quantity = reservation.quantity
		 RETURNING quantity`,
		order, product, quantity).Scan(&reserved)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrOutOfStock
	case err == nil && reserved != quantity:
		return ErrOtherQuantity
	}
	return err
}

// CancelReservation gives the goods back. It can be sent as often as Reserve.
func CancelReservation(ctx context.Context, db DB, order, product string) error {
	_, err := db.ExecContext(ctx, `DELETE FROM reservation WHERE order_id = ? AND product = ?`, order, product)
	return err
}

// Available tells how many of a product can be reserved.
func Available(ctx context.Context, db DB, product string) (n int, err error) {
	err = db.QueryRowContext(ctx,
		`SELECT on_hand - (SELECT COALESCE(SUM(quantity), 0) FROM reservation WHERE product = stock.product)
		 FROM stock WHERE product = ?`, product).Scan(&n)
	return n, err
}
