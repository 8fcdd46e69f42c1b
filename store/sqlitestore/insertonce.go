package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Insert is a row of an application's own table that a unique constraint allows once. The names are raw SQL: letters,
// digits and "_", dots in Table, or in double quotes.
type Insert struct {
	Table   string
	Columns []string
	Values  []any // of the Columns, in their order
	// Key names the columns of the unique constraint, all of which are in Columns: they identify the row. None of the
	// values may be NULL, because NULLs are not equal for a unique constraint. The database refuses columns that no
	// unique constraint or index covers.
	Key []string
	// Where is the predicate of the unique index, if it is a partial one: "deleted_at IS NULL". It is raw SQL.
	Where string
	// Returning are the columns to read back, of the new row or of the existing one.
	Returning []string
}

// Row is a row to scan. NULL is the zero value in an *int64 or *string.
type Row interface{ Scan(dest ...any) error }

// Querier is a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ErrInvisible: the row with this key cannot be read. Either this transaction's snapshot does not see it (run the
// whole transaction again), or it is repeatedly inserted and deleted.
var ErrInvisible = sqlstore.ErrInvisible

// InsertOnce inserts a row into a table of the application, or finds the existing row with the same key, and reports
// which. It uses the unique constraint of the business table, which you need for money in addition to any record of
// operations. q is a *sql.DB or *sql.Tx, such as the transaction of a Transact. scan reads the columns in.Returning
// of the row.
//
// Only the constraint of in.Key makes a duplicate. If another unique constraint is violated, InsertOnce looks for the
// row with this key, because a true retry repeats the primary key too. If no row has the key, it returns the violation
// as an error. Other errors, such as a full disk or a missing table, are returned too. After an error, including one of
// scan, a transaction is usable and unchanged, unless SQLite has ended it. Without a transaction the row stays in the
// table if scan fails.
func InsertOnce[T any](ctx context.Context, q Querier, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	_, inTx := q.(*sql.Tx)
	return sqlstore.InsertOnce(ctx, querier{q}, sqlstore.InsertDialect{Classify: classify}, inTx, sqlstore.Insert(in), func(r sqldb.Row) (T, error) { return scan(r) })
}

// querier sends statements through database/sql.
type querier struct{ q Querier }

func (c querier) Send(ctx context.Context, calls ...*sqldb.Call) error {
	return sqldb.SendSQL(ctx, c.q, calls...)
}
