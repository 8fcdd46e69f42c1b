package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Insert is a row of an application's own table that a unique index allows once. The names are raw SQL: letters, digits
// and "_", dots in Table, or in backquotes.
type Insert struct {
	Table   string
	Columns []string
	Values  []any // of the Columns, in their order
	// Key names the columns of the unique index, all of which are in Columns: they identify the row. None of the values
	// may be NULL, because NULLs are not equal for a unique index. The index's collation decides which values are
	// equal.
	Key []string
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

// ErrInvisible: the row with this key cannot be read: it is repeatedly inserted and deleted.
var ErrInvisible = sqlstore.ErrInvisible

// InsertOnce inserts a row into a table of the application, or finds the existing row with the same key, and reports
// which. It uses the unique index of the business table, which you need for money in addition to any record of
// operations. q may be the transaction of a Transact. scan reads the columns in.Returning of the row.
//
// Only a row with this key makes a duplicate. If the server reports another index, InsertOnce looks for the row with
// this key, because a true retry repeats the primary key too, and the server names only one. If there is no such row,
// it returns the violation as an error. Other errors, such as a value that does not fit, are returned too: InsertOnce
// never uses INSERT IGNORE, which changes values to make them fit. It needs a unique index over in.Key: without one,
// every insert is a first one.
//
// InsertOnce runs behind a savepoint: after any error, including one of scan, a transaction is usable and unchanged,
// unless the server has rolled it back for a deadlock; the error says that the transaction is lost. On a *sql.DB or
// *sql.Conn InsertOnce sends an INSERT and a SELECT, and no transaction: after an error of the SELECT or of scan the
// row may be there.
//
// InsertOnce waits for an open transaction that has inserted the same key, up to innodb_lock_wait_timeout. It then
// finds that row, at repeatable read too, or inserts its own if the transaction was rolled back. A transaction that you
// began by a BEGIN on a *sql.Conn stays open, and has no savepoint. Where innodb_snapshot_isolation is on, as from
// MariaDB 11.6.2 on, a row that is newer than the transaction's snapshot is not found: the transaction is lost, with
// error 1020.
func InsertOnce[T any](ctx context.Context, q Querier, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	same := sqlstore.Insert{Table: in.Table, Columns: in.Columns, Values: in.Values, Key: in.Key, Returning: in.Returning}
	dialect := sqlstore.InsertDialect{Classify: classify, MySQL: true}
	_, inTx := q.(*sql.Tx)
	return sqlstore.InsertOnce(ctx, querier{q}, dialect, inTx, same, func(r sqldb.Row) (T, error) { return scan(r) })
}

// querier sends statements through database/sql.
type querier struct{ q Querier }

func (c querier) Send(ctx context.Context, calls ...*sqldb.Call) error {
	guarded := make([]*sqldb.Call, len(calls))
	for i, call := range calls {
		as := *call.Statement
		as.Text = sqldb.Guarded(as.Text)
		same := *call
		same.Statement = &as
		guarded[i] = &same
	}
	return settings(sqldb.SendSQL(ctx, c.q, guarded...))
}
