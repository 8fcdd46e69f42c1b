package pgxstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/internal/sqldb"
)

// pgxTx is a transaction that the store began. Its BEGIN rides with the first statement, ours or the
// application's. Its connection goes back to the pool with its end.
type pgxTx struct {
	driver *pgxDriver
	conn   *pgxpool.Conn
	level  string   // the statement that begins it
	inner  pgx.Tx   // nil as long as nothing was sent
	ahead  []string // savepoints, which ride like BEGIN
	lent   *lentTx
	limit  sqldb.Limit
	over   atomic.Bool // it has ended
}

func (t *pgxTx) Tx() pgx.Tx { return t.lent }

// waits reports whether something waits for the next statement, to be sent ahead of it.
func (t *pgxTx) waits() bool { return t.inner == nil || len(t.ahead) > 0 }

// first sends a batch with what waits at its head. The answers of what was queued in it remain to be read.
func (t *pgxTx) first(ctx context.Context, queue func(*pgx.Batch)) (results pgx.BatchResults, err error) {
	var batch pgx.Batch
	ahead := len(t.ahead)
	if t.inner == nil {
		ahead++
		batch.BeginTx(pgx.TxOptions{BeginQuery: t.level})
	}
	for _, text := range t.ahead {
		batch.Queue(text)
	}
	t.ahead = nil
	queue(&batch)
	if t.inner == nil {
		results = t.conn.SendBatch(ctx, &batch)
		t.inner = results.Tx()
	} else {
		results = t.inner.SendBatch(ctx, &batch)
	}
	for ; ahead > 0 && err == nil; ahead-- {
		_, err = results.Exec()
	}
	return results, err
}

// begin sends the waiting calls without a statement of the work, and returns the transaction to lend to the work.
func (t *pgxTx) begin(ctx context.Context) (pgx.Tx, error) {
	if t.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	if t.waits() {
		results, err := t.first(ctx, func(*pgx.Batch) {})
		if err = closeBatch(results, err); err != nil {
			return nil, err
		}
	}
	return t.inner, nil
}

func (t *pgxTx) Send(ctx context.Context, calls ...*sqldb.Call) error {
	switch {
	case t.over.Load():
		return t.limit.Reason(pgx.ErrTxClosed)
	case len(calls) == 1 && calls[0].Statement.Rides:
		t.ahead = append(t.ahead, calls[0].Statement.Text)
		return nil
	case !t.waits():
		return t.limit.Reason(pgxConn{t.inner}.Send(ctx, calls...))
	}
	results, err := t.first(ctx, func(b *pgx.Batch) {
		for _, call := range calls {
			b.Queue(call.Statement.Text, call.Args...)
		}
	})
	if err == nil {
		err = readCalls(results, calls)
	}
	return t.limit.Reason(closeBatch(results, err))
}

// Commit sends the last statements and the commit in one round trip. The server skips the commit if one
// of them fails, and those that must write fail where they find nothing to write.
func (t *pgxTx) Commit(ctx context.Context, last ...*sqldb.Call) error {
	if err := t.ending(ctx); err != nil {
		return err
	}
	queue := func(b *pgx.Batch) {
		for _, call := range last {
			text := call.Statement.Text
			if call.Must {
				text = t.driver.must.of(call.Statement)
			}
			b.Queue(text, call.Args...)
		}
		b.Queue("commit")
	}
	var results pgx.BatchResults
	var err error
	if t.inner == nil {
		results, err = t.first(ctx, queue)
	} else {
		var batch pgx.Batch
		queue(&batch)
		results = t.inner.SendBatch(ctx, &batch)
	}
	err = t.readCommit(results, last, err)
	t.over.Store(true)
	t.endFailed(ctx) // where the server has not ended it
	return err
}

// ending makes sure that the commit is the next thing to happen to the transaction.
func (t *pgxTx) ending(ctx context.Context) error {
	if t.over.Load() {
		return t.limit.Reason(pgx.ErrTxClosed)
	}
	var err error
	switch conn := t.conn.Conn(); {
	case !t.limit.Stop():
		err = pgx.ErrTxClosed
	case conn.IsClosed():
		err = fmt.Errorf("%w: %w", errBroken, pgconn.ErrConnClosed)
	case conn.PgConn().IsBusy(): // nothing can be sent, which must not look like a lost answer
		err = errRowsOpen
	case t.inner != nil && conn.PgConn().TxStatus() == 'I':
		err = errNoTx
	}
	if err != nil {
		_ = t.Rollback(ctx) //nolint:errcheck // the earlier error is returned
	}
	return t.limit.Reason(err)
}

// readCommit reads the answers to what was sent with a commit, and that to the commit itself.
func (t *pgxTx) readCommit(results pgx.BatchResults, last []*sqldb.Call, err error) error {
	if err == nil {
		err = readWrapped(results, last)
	}
	ahead := err // the commit was not come to
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	err = closeBatch(results, err)
	switch {
	case err == nil && tag.String() == "ROLLBACK":
		return pgx.ErrTxCommitRollback
	case err == nil:
		return nil
	case t.driver.isNothingWritten(err):
		return sqldb.ErrNothingWritten
	case isTxTimeout(ahead):
		return err
	case commitLost(err):
		return fmt.Errorf("%w: %w", sqldb.ErrCommitLost, err)
	}
	return err
}

// readWrapped reads answers like readCalls. A wrapped statement answers a row where it wrote.
func readWrapped(results pgx.BatchResults, last []*sqldb.Call) error {
	for _, call := range last {
		if !call.Must {
			if err := readCalls(results, []*sqldb.Call{call}); err != nil {
				return err
			}
			continue
		}
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		call.Affected = tag.RowsAffected()
	}
	return nil
}

func (t *pgxTx) Rollback(ctx context.Context) error {
	if t.over.Swap(true) {
		return nil
	}
	if !t.limit.Stop() { // it closes the connection, and may not have come to it yet
		closed, cancel := context.WithCancel(ctx)
		cancel()
		_ = t.conn.Conn().Close(closed) //nolint:errcheck // the server has closed it already
	}
	t.endFailed(ctx)
	return nil
}

// endFailed rolls back what is open on the server, so that the connection can be used again; where it can
// not, the connection is closed, which rolls back as well.
func (t *pgxTx) endFailed(ctx context.Context) {
	defer t.conn.Release()
	if t.inner == nil || t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.inner.Rollback(ctx) //nolint:errcheck // it closes the connection if it fails
}
