package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/store/sqlstore"
)

// InsertOnce inserts a row into a table of the application, or finds the one that is there with the same
// key, and says which: the unique constraint on the business table itself, which money wants beside
// every record of operations. q is a *sql.DB or *sql.Tx; in a transaction of this package's Transact, say.
//
// Only the constraint that in.Key names makes a duplicate; a full disk, a missing table or another violated
// constraint is an error. After one the transaction is alive and as it was before, unless SQLite has ended it by itself; an
// error of scan takes the row back too. Without a transaction the row stays. scan reads in.Returning of the row; NULL
// is the zero value in an *int64 or *string.
func InsertOnce[T any](ctx context.Context, q sqlstore.SQLQuerier, in sqlstore.Insert, scan func(sqlstore.Row) (T, error)) (row T, inserted bool, err error) {
	_, inTx := q.(*sql.Tx)
	return sqlstore.InsertOnce(ctx, querier{q}, classify, inTx, in, scan)
}

// querier sends statements through database/sql.
type querier struct{ q sqlstore.SQLQuerier }

func (c querier) Send(ctx context.Context, calls ...*sqlstore.Call) error {
	return sqlstore.SendSQL(ctx, c.q, calls...)
}
