package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotYours is the error of Commit and Rollback on a transaction that the store ends.
var errNotYours = errors.New("pgxstore: the work cannot end its transaction (return from the work instead)")

// lentTx is the transaction as the application sees it: it cannot be ended, and is closed for good after its end,
// because the connection then serves others. A statement is sent together with the waiting calls, BEGIN and savepoints;
// otherwise pgx sends it.
type lentTx struct{ of *pgxTx }

func (l *lentTx) Commit(context.Context) error   { return l.notYours() }
func (l *lentTx) Rollback(context.Context) error { return l.notYours() }

func (l *lentTx) notYours() error {
	if l.of.over.Load() {
		return pgx.ErrTxClosed
	}
	return errNotYours
}

func (l *lentTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if !l.rides(args) {
		tx, err := l.of.begin(ctx)
		if err != nil {
			return tag, err
		}
		return tx.Exec(ctx, sql, args...)
	}
	results, err := l.first(ctx, sql, args)
	if err == nil {
		tag, err = results.Exec()
	}
	return tag, closeBatch(results, err)
}

func (l *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !l.rides(args) {
		tx, err := l.of.begin(ctx)
		if err != nil {
			return failedRows(err)
		}
		return tx.Query(ctx, sql, args...)
	}
	results, err := l.first(ctx, sql, args)
	var rows pgx.Rows
	if err == nil {
		rows, err = results.Query()
	}
	if err != nil {
		return failedRows(closeBatch(results, err))
	}
	return &firstRows{Rows: rows, results: results}, nil
}

func (l *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := l.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// rides reports whether a waiting call may be sent together with a statement. Without arguments pgx sends a statement
// by the simple protocol, in which the text may hold several statements, and pgx's options for a single statement do
// not apply to a batch.
func (l *lentTx) rides(args []any) bool {
	if !l.of.waits() || l.of.over.Load() || len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return false
	}
	return true
}

func (l *lentTx) first(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	return l.of.first(ctx, func(b *pgx.Batch) { b.Queue(sql, args...) })
}

func (l *lentTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := l.of.begin(ctx)
	if err != nil {
		return nil, err
	}
	return nested(ctx, tx, l.of)
}

func (l *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	tx, err := l.of.begin(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, src)
}

func (l *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx, err := l.of.begin(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return tx.SendBatch(ctx, b)
}

func (l *lentTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := l.of.begin(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Prepare(ctx, name, sql)
}

// LargeObjects returns the large objects. After the end of the transaction, the returned value cannot be used. A large
// object that was opened before the end is not closed by it, since pgx offers no way to do so.
func (l *lentTx) LargeObjects() pgx.LargeObjects {
	if tx := l.begunAtOnce(); tx != nil {
		return tx.LargeObjects()
	}
	return pgx.LargeObjects{}
}

// Conn returns the connection, for what goes around the transaction's methods. It is nil after the end.
func (l *lentTx) Conn() *pgx.Conn {
	if tx := l.begunAtOnce(); tx != nil {
		return tx.Conn()
	}
	return nil
}

// begunAtOnce begins the transaction for the methods that have no context.
func (l *lentTx) begunAtOnce() pgx.Tx {
	ctx, cancel := context.WithTimeout(context.Background(), beginTimeout)
	defer cancel()
	tx, err := l.of.begin(ctx)
	if err != nil {
		return nil
	}
	return tx
}

// firstRows are the rows of a statement that took something along.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *firstRows) Close() {
	r.Rows.Close()
	r.err = r.results.Close()
}

func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

func failedRows(err error) (pgx.Rows, error) {
	return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
}

// oneRow is the first of some rows.
type oneRow struct {
	rows pgx.Rows
	err  error
}

func (r oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// nestedTx is a savepoint of a lent transaction. The application ends it, unless the whole transaction has ended.
// Waiting calls, such as the release of a savepoint of the store's within it, are sent before anything that it sends.
type nestedTx struct {
	pgx.Tx
	of *pgxTx
}

func nested(ctx context.Context, tx pgx.Tx, of *pgxTx) (pgx.Tx, error) {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &nestedTx{Tx: inner, of: of}, nil
}

// ready sends what waits.
func (t *nestedTx) ready(ctx context.Context) error {
	_, err := t.of.begin(ctx)
	return err
}

func (t *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	return nested(ctx, t.Tx, t.of)
}

func (t *nestedTx) Commit(ctx context.Context) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	return t.Tx.Commit(ctx)
}

func (t *nestedTx) Rollback(ctx context.Context) error {
	if err := t.ready(ctx); errors.Is(err, pgx.ErrTxClosed) { // what waited may fail otherwise, and is undone
		return err
	}
	return t.Tx.Rollback(ctx)
}

func (t *nestedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.ready(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

func (t *nestedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.ready(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// LargeObjects returns the large objects of the whole transaction.
func (t *nestedTx) LargeObjects() pgx.LargeObjects {
	return t.of.lent.LargeObjects()
}

// Conn returns the connection of the whole transaction, or nil after its end.
func (t *nestedTx) Conn() *pgx.Conn {
	return t.of.lent.Conn()
}

func (t *nestedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *nestedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.ready(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *nestedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.ready(ctx); err != nil {
		return failedRows(err)
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *nestedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.ready(ctx); err != nil {
		return oneRow{err: err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}
