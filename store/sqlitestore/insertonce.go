package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

type (
	// Insert is a row of an application's own table that a unique constraint allows once: its Table, Columns and Values;
	// Key, the columns of the constraint, and Where, the predicate of a partial index; and Returning, the columns to read back.
	Insert = sqlstore.Insert
	// Row is a row to Scan.
	Row = sqldb.Row
)

// ErrInvisible: the row with this key cannot be read. Either this transaction's snapshot does not see it (run the
// whole transaction again), or it is repeatedly inserted and deleted.
var ErrInvisible = sqlstore.ErrInvisible

// InsertOnce inserts a row into a table of the application, or finds the existing row with the same key, and reports
// which. It uses the unique constraint of the business table, which you need for money in addition to any record of
// operations. q is a *sql.DB or *sql.Tx, such as the transaction of a Transact. scan reads the columns in.Returning
// of the row; NULL is the zero value in an *int64 or *string.
//
// Only the constraint of in.Key makes a duplicate. If another unique constraint is violated, InsertOnce looks for the
// row with this key, because a true retry repeats the primary key too. If there is none, it returns the violation as
// an error. Other errors, such as a full disk or a missing table, are returned too. After an error, including one of
// scan, a transaction is usable and unchanged, unless SQLite has ended it by itself. Without a transaction the row
// stays if scan fails.
func InsertOnce[T any](ctx context.Context, q sqldb.SQLQuerier, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	_, inTx := q.(*sql.Tx)
	return sqlstore.InsertOnce(ctx, querier{q}, classify, inTx, in, scan)
}

// querier sends statements through database/sql.
type querier struct{ q sqldb.SQLQuerier }

func (c querier) Send(ctx context.Context, calls ...*sqldb.Call) error {
	return sqldb.SendSQL(ctx, c.q, calls...)
}
