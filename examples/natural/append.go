package natural

import "context"

// Comment is an item of a list. Its client gives it an ID before it is sent for the first time.
type Comment struct {
	ID, Post, Body string
}

// AppendComment adds a comment to its post, once: the item's ID is the key, so the second is not another.
// It reports whether this call added it.
func AppendComment(ctx context.Context, db DB, c Comment) (bool, error) {
	res, err := db.ExecContext(ctx,
		`INSERT INTO comment (id, post, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		c.ID, c.Post, c.Body)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
