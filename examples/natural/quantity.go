package natural

import "context"

// SetQuantity says how many of a product are to be in the cart, not how many more. None takes it out.
func SetQuantity(ctx context.Context, db DB, cart, product string, quantity int) error {
	if quantity == 0 {
		_, err := db.ExecContext(ctx, `DELETE FROM cart_line WHERE cart = ? AND product = ?`, cart, product)
		return err
	}
	_, err := db.ExecContext(ctx,
		`INSERT INTO cart_line (cart, product, quantity) VALUES (?, ?, ?)
		 ON CONFLICT (cart, product) DO UPDATE SET quantity = excluded.quantity`,
		cart, product, quantity)
	return err
}
