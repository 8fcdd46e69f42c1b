package pgxstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Querier is a *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn or pgx.Tx.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

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
	// AsyncCommit leaves the commit of a new row as the connection's synchronous_commit says, as [Options.AsyncCommit]
	// does.
	AsyncCommit bool
}

// once is the insert in the engine's words.
func (in *Insert) once() (sqlstore.InsertDialect, sqlstore.Insert) {
	d := sqlstore.InsertDialect{Classify: classify, Durable: durable}
	if in.AsyncCommit {
		d.Durable = ""
	}
	return d, sqlstore.Insert{Table: in.Table, Columns: in.Columns, Values: in.Values, Key: in.Key, Where: in.Where, Returning: in.Returning}
}

// Row is a row to scan. NULL is the zero value in an *int64 or *string.
type Row interface{ Scan(dest ...any) error }

// SQLQuerier is a *sql.DB, *sql.Conn or *sql.Tx.
type SQLQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ErrInvisible: the row with this key cannot be read. Either this transaction's snapshot does not see it (run the
// whole transaction again), or it is repeatedly inserted and deleted.
var ErrInvisible = sqlstore.ErrInvisible

// InsertOnce inserts a row into a table of the application, or finds the existing row with the same key, and reports
// which. It uses the unique constraint of the business table, which you need for money in addition to any record of
// operations. q may be the transaction of a Transact. scan reads the columns in.Returning of the row.
//
// Only the constraint of in.Key makes a duplicate. If another unique constraint is violated, InsertOnce looks for the
// row with this key, because a true retry repeats the primary key too. If no row has the key, it returns the violation
// as an error. Other errors, such as a full disk, a missing table or a permission, are returned too. InsertOnce runs
// behind a savepoint: after any error, including one of scan, a transaction is usable and unchanged, unless the
// connection was lost. Without a transaction the row stays in the table if scan fails.
//
// InsertOnce waits for an open transaction that has inserted the same key. It then finds that row, or inserts its own
// if the transaction was rolled back. At repeatable read and serializable, if the other transaction has committed,
// this one can never see its row, and InsertOnce returns a serialization failure: the whole transaction must be run
// again, as Transact does. Without a transaction InsertOnce does so itself, at read committed.
//
// The transaction that inserts the row commits with synchronous_commit on, or remote_apply, whatever the session says,
// unless in.AsyncCommit is set.
func InsertOnce[T any](ctx context.Context, q Querier, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	inTx := inTransaction(q)
	row, inserted, err = insertOnce(ctx, q, inTx, in, scan)
	if to, ok := q.(interface {
		BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	}); ok && !inTx && isSerialization(err) {
		err = pgx.BeginTxFunc(ctx, to, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			row, inserted, err = insertOnce(ctx, tx, true, in, scan)
			return err
		})
	}
	return row, inserted, err
}

func insertOnce[T any](ctx context.Context, q Querier, inTx bool, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	dialect, insert := in.once()
	return sqlstore.InsertOnce(ctx, pgxConn{q}, dialect, inTx, insert, func(r sqldb.Row) (T, error) { return scan(r) })
}

// InsertOnceSQL is [InsertOnce] through database/sql. q is a *sql.DB, a *sql.Tx, or a *sql.Conn that has no open
// transaction.
func InsertOnceSQL[T any](ctx context.Context, q SQLQuerier, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	_, inTx := q.(*sql.Tx)
	row, inserted, err = insertOnceSQL(ctx, q, inTx, in, scan)
	to, ok := q.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	if !ok || !isSerialization(err) {
		return row, inserted, err
	}
	tx, err := to.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return row, false, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if row, inserted, err = insertOnceSQL(ctx, tx, true, in, scan); err != nil {
		return row, false, err
	}
	return row, inserted, tx.Commit()
}

func insertOnceSQL[T any](ctx context.Context, q SQLQuerier, inTx bool, in Insert, scan func(Row) (T, error)) (row T, inserted bool, err error) {
	dialect, insert := in.once()
	return sqlstore.InsertOnce(ctx, sqlConn{q}, dialect, inTx, insert, func(r sqldb.Row) (T, error) { return scan(r) })
}

// inTransaction reports whether a savepoint can be made, and is needed.
func inTransaction(q Querier) bool {
	switch q := q.(type) {
	case pgx.Tx:
		return true
	case *pgx.Conn:
		return q.PgConn().TxStatus() == 'T'
	case *pgxpool.Conn:
		return q.Conn().PgConn().TxStatus() == 'T'
	}
	return false
}
