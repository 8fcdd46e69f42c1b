package pgxstore

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotYours is what Commit and Rollback answer on a transaction that the store ends.
var errNotYours = errors.New("pgxstore: the transaction is ended by what began it: return from the work instead")

// lentTx is the transaction as the application sees it: everything but its end, and closed for good
// after that, because the connection then serves others.
type lentTx struct {
	pgx.Tx // the transaction, or a nested one

	over   *atomic.Bool
	nested bool
}

func (t *lentTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lentTx{Tx: inner, over: t.over, nested: true}, nil
}

func (t *lentTx) Commit(ctx context.Context) error {
	switch {
	case t.over.Load():
		return pgx.ErrTxClosed
	case t.nested:
		return t.Tx.Commit(ctx)
	}
	return errNotYours
}

func (t *lentTx) Rollback(ctx context.Context) error {
	switch {
	case t.over.Load():
		return pgx.ErrTxClosed
	case t.nested:
		return t.Tx.Rollback(ctx)
	}
	return errNotYours
}

func (t *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if t.over.Load() {
		return 0, pgx.ErrTxClosed
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

func (t *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.over.Load() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.Tx.SendBatch(ctx, b)
}

func (t *lentTx) LargeObjects() pgx.LargeObjects {
	if t.over.Load() {
		return pgx.LargeObjects{}
	}
	return t.Tx.LargeObjects()
}

func (t *lentTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *lentTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.over.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.over.Load() {
		return pgx.FailedBatchResults(&pgx.Batch{}, pgx.ErrTxClosed).Query()
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.over.Load() {
		return pgx.FailedBatchResults(&pgx.Batch{}, pgx.ErrTxClosed).QueryRow()
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}
