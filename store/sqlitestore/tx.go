package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// txConn is a transaction as the engine sees it.
type txConn struct {
	tx *sql.Tx
	// open is the transaction on a connection of [Store.DB], by which the engine's statements go past
	// database/sql; nil for one that was begun on another handle of the same file.
	open    *openTx
	stop    func() // ends the bound; nil for a joined one
	expired atomic.Bool
}

// Begin begins a transaction that holds the writer: see sqlstore.Driver.
func (d *database) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[*sql.Tx], error) {
	if opts.Key != nil {
		// Before the turn: a second caller for the same key fails fast, and does not queue.
		waiting := new(pendingTx)
		if !d.locks.lock(*opts.Key, waiting) {
			return nil, sqlstore.ErrKeyLocked
		}
		defer d.locks.release(*opts.Key, waiting)
	}
	c, err := d.begin(ctx, opts, first)
	if err != nil {
		return nil, err
	}
	if opts.Key != nil {
		d.locks.transfer(*opts.Key, c.open)
	}
	return c, nil
}

// pendingTx holds a key for a transaction that has not begun. It has a size, so that each has its own address.
type pendingTx struct{ _ byte }

func (*pendingTx) ended() bool { return false }

func (d *database) begin(ctx context.Context, opts sqlstore.BeginOptions, first []*sqldb.Call) (*txConn, error) {
	if err := d.turn.enter(ctx); err != nil {
		return nil, err
	}
	b := &beginning{entered: true, lent: true, ctx: ctx}
	stop := func() {}
	if opts.Timeout > 0 {
		b.limit, stop = context.WithTimeoutCause(context.Background(), opts.Timeout, driver.ErrTxTooLong)
	}
	// The transaction must not end with the context of the request: database/sql would roll it back.
	tx, err := d.db.BeginTx(context.WithValue(context.WithoutCancel(ctx), beginningKey{}, b), nil)
	if err != nil {
		stop()
		if b.entered { // it did not come to BeginTx
			d.turn.leave()
		}
		return nil, err
	}
	c := &txConn{tx: tx, open: b.tx, stop: stop}
	if b.limit != nil {
		cancelLimit := stop
		rolledBack := make(chan struct{})
		stopTimer := context.AfterFunc(b.limit, func() {
			defer close(rolledBack)
			if errors.Is(context.Cause(b.limit), driver.ErrTxTooLong) {
				c.expired.Store(true)
				_ = tx.Rollback() //nolint:errcheck // it may have just ended, which is as good
			}
		})
		c.stop = sync.OnceFunc(func() {
			if !stopTimer() { // to database/sql it is over as soon as its end begins: the key and the writer are free later
				<-rolledBack
			}
			cancelLimit()
		})
	}
	if err := c.Send(ctx, first...); err != nil {
		return nil, errors.Join(err, c.Rollback(ctx))
	}
	return c, nil
}

// whichTransaction asks a connection which transaction it is in. Connections of [Store.DB] answer it
// themselves.
const whichTransaction = "SELECT 0 AS everonce_transaction"

// serialRow is the answer to whichTransaction.
type serialRow struct {
	tx   *openTx
	read bool
}

func (*serialRow) Columns() []string { return []string{"everonce_transaction"} }
func (*serialRow) Close() error      { return nil }

func (r *serialRow) Next(dest []sqldriver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	dest[0] = int64(0)
	if r.tx != nil {
		dest[0] = r.tx.serial
	}
	return nil
}

// Join wraps a transaction of the caller's: see sqlstore.Driver.
func (d *database) Join(ctx context.Context, tx *sql.Tx) (sqldb.TxConn[*sql.Tx], error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalidArgument)
	}
	var serial int64
	if err := tx.QueryRowContext(ctx, whichTransaction).Scan(&serial); err != nil {
		return nil, fmt.Errorf("sqlitestore: join: %w", err)
	}
	if open := d.transaction(serial); open != nil {
		return &txConn{tx: tx, open: open}, nil
	}
	if err := d.sameFile(ctx, tx); err != nil {
		return nil, err
	}
	return &txConn{tx: tx}, nil
}

// sameFile refuses a transaction on another database.
func (d *database) sameFile(ctx context.Context, tx *sql.Tx) error {
	var file string
	if err := tx.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		return fmt.Errorf("%w: it is not a SQLite transaction: %w", driver.ErrOtherStore, err)
	}
	theirs, err := os.Stat(file)
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat(d.path); err == nil && os.SameFile(ours, theirs) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is on another database file", driver.ErrOtherStore)
}

// Locked reports whether a transaction of this process has claimed the key: see sqlstore.KeyLocker.
func (d *database) Locked(id driver.RecordID) bool { return d.locks.locked(id) }

// LockKey locks a key until a transaction ends: see sqlstore.KeyLocker.
func (d *database) LockKey(c sqldb.TxConn[*sql.Tx], id driver.RecordID) bool {
	t, ok := c.(*txConn)
	if !ok {
		return false
	}
	if t.open == nil {
		return d.locks.lockPolled(id, foreignTx{t.tx})
	}
	return d.locks.transfer(id, t.open)
}

// foreignTx holds keys for a transaction on another handle of the file, whose end is not reported.
type foreignTx struct{ tx *sql.Tx }

func (f foreignTx) ended() bool { return sqldb.SQLTxDone(f.tx) }

func (c *txConn) Tx() *sql.Tx { return c.tx }

// Send runs statements in the transaction.
func (c *txConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if c.open == nil {
		return sqldb.SendSQL(ctx, c.tx, calls...)
	}
	return c.tooLong(c.open.conn.sendIn(c.open, calls))
}

// sendIn runs the engine's statements in a transaction of this connection.
func (c *conn) sendIn(tx *openTx, calls []*sqldb.Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.tx != tx:
		return sql.ErrTxDone
	case tx.dead.Load():
		return errTxEnded
	}
	for _, call := range calls {
		if err := c.raw.send(context.Background(), call); err != nil {
			return err
		}
		if call.Missed() {
			return sqldb.ErrNothingWritten
		}
	}
	return nil
}

// tooLong adds [driver.ErrTxTooLong] to an error that the time limit of the transaction has caused.
func (c *txConn) tooLong(err error) error {
	if err != nil && c.expired.Load() {
		return fmt.Errorf("%w: it blocked all writers of this database: %w", driver.ErrTxTooLong, err)
	}
	return err
}

// Commit ends the transaction: see sqldb.TxConn.
func (c *txConn) Commit(ctx context.Context, last ...*sqldb.Call) error {
	if err := c.Send(ctx, last...); err != nil {
		_ = c.Rollback(ctx) //nolint:errcheck // the first error is returned
		return err
	}
	c.open.ending.Store(true)
	err := c.tx.Commit()
	c.stop()
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_IOERR {
		// Some of it may be on the disk, and be found there after a crash.
		return fmt.Errorf("%w: %w", sqldb.ErrCommitLost, err)
	}
	return c.tooLong(err)
}

// Rollback ends the transaction: see sqldb.TxConn.
func (c *txConn) Rollback(context.Context) error {
	err := c.tx.Rollback()
	c.stop()
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
