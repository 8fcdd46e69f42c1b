package pgxstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlstore"
)

// pgxDriver reaches the database through a pgx pool.
type pgxDriver struct {
	*database
	pool *pgxpool.Pool
	name string // of the database, for Join
}

func newPgxDriver(pool *pgxpool.Pool, opts *Options) (*pgxDriver, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", everonce.ErrInvalidArgument)
	}
	db, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	d := &pgxDriver{database: db, pool: pool, name: pool.Config().ConnConfig.Database}
	db.read = d.Read
	return d, nil
}

func (d *pgxDriver) Read(ctx context.Context, calls ...*sqlstore.Call) error {
	return pgxConn{d.pool}.Send(ctx, calls...)
}

func (d *pgxDriver) Write(ctx context.Context, op func(context.Context, sqlstore.Conn) error) error {
	return op(ctx, pgxConn{d.pool})
}

func (d *pgxDriver) Exclusive(ctx context.Context, op func(context.Context, sqlstore.Conn) error) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		conn := pgxConn{tx}
		for _, call := range d.exclusively() { // one after the other: the second looks at what the first waited for
			if err := conn.Send(ctx, call); err != nil {
				return err
			}
		}
		return op(ctx, conn)
	})
}

func (d *pgxDriver) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqlstore.Call) (sqlstore.TxConn[pgx.Tx], error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx := &pgxTx{driver: d, conn: conn}
	if opts.Timeout > 0 {
		// Nothing else ends a statement that runs: closing the connection does, and the server rolls back.
		socket := conn.Conn().PgConn().Conn()
		tx.timer = time.AfterFunc(opts.Timeout, func() {
			tx.late.Store(true)
			_ = socket.Close() //nolint:errcheck // the statement that it cuts short tells
		})
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{BeginQuery: d.begin})
	for _, call := range first {
		batch.Queue(call.Statement.Text, call.Args...)
	}
	results := conn.SendBatch(ctx, &batch)
	_, err = results.Exec()
	if err == nil {
		err = readCalls(results, first)
	}
	tx.inner = results.Tx()
	if err = closeBatch(results, err); err != nil {
		_ = tx.Rollback(ctx) //nolint:errcheck // what went wrong before is what is told
		return nil, tx.tooLate(err)
	}
	tx.lent = &lentTx{Tx: tx.inner, over: &tx.over}
	return tx, nil
}

func (d *pgxDriver) Join(_ context.Context, tx pgx.Tx) (sqlstore.TxConn[pgx.Tx], error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the transaction is nil", everonce.ErrInvalidArgument)
	}
	if conn := tx.Conn(); conn != nil && conn.Config().Database != d.name {
		return nil, fmt.Errorf("%w: it is of another database than the store's", everonce.ErrOtherStore)
	}
	return &joinedTx[pgx.Tx]{Conn: pgxConn{tx}, tx: tx}, nil
}

// pgxTx is a transaction that the store began. Its connection goes back to the pool with its end.
type pgxTx struct {
	driver *pgxDriver
	conn   *pgxpool.Conn
	inner  pgx.Tx
	lent   *lentTx
	timer  *time.Timer
	late   atomic.Bool // the time was over
	over   atomic.Bool // it has ended
}

func (t *pgxTx) Tx() pgx.Tx { return t.lent }

func (t *pgxTx) Send(ctx context.Context, calls ...*sqlstore.Call) error {
	if t.over.Load() {
		return t.tooLate(pgx.ErrTxClosed)
	}
	return t.tooLate(pgxConn{t.inner}.Send(ctx, calls...))
}

// Commit sends the last statements and the commit in one round trip. The server skips the commit if one
// of them fails, and those that must write fail where they find nothing to write.
func (t *pgxTx) Commit(ctx context.Context, last ...*sqlstore.Call) error {
	if t.over.Load() {
		return t.tooLate(pgx.ErrTxClosed)
	}
	if t.timer != nil && !t.timer.Stop() { // from here on it is the commit that decides
		_ = t.Rollback(ctx) //nolint:errcheck // what went wrong before is what is told
		return t.tooLate(pgx.ErrTxClosed)
	}
	if t.conn.Conn().IsClosed() { // it broke under the work; nothing of the commit is sent
		_ = t.Rollback(ctx) //nolint:errcheck // what went wrong before is what is told
		return t.tooLate(fmt.Errorf("%w: %w", errBroken, pgconn.ErrConnClosed))
	}
	var batch pgx.Batch
	for _, call := range last {
		text := call.Statement.Text
		if call.Must {
			text = t.driver.must.of(call.Statement)
		}
		batch.Queue(text, call.Args...)
	}
	batch.Queue("commit")
	results := t.inner.SendBatch(ctx, &batch)
	sent, err := t.readCommit(results, last)
	t.over.Store(true)
	switch {
	case err == nil:
		t.release()
		return nil
	case !sent:
		t.endFailed(ctx)
		return err
	default:
		t.release() // what is not idle is closed
		return err
	}
}

// readCommit reads the answers, and reports whether the commit may have been done for all the error says.
func (t *pgxTx) readCommit(results pgx.BatchResults, last []*sqlstore.Call) (sent bool, err error) {
	err = readWrapped(results, last)
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	err = closeBatch(results, err)
	switch {
	case err == nil && tag.String() == "ROLLBACK":
		return true, pgx.ErrTxCommitRollback
	case err == nil:
		return true, nil
	case isNothingWritten(err):
		return false, sqlstore.ErrNothingWritten
	case commitLost(err):
		return true, fmt.Errorf("%w: %w", sqlstore.ErrCommitLost, err)
	}
	return false, err
}

// readWrapped reads answers like readCalls. A wrapped statement answers a row where it wrote.
func readWrapped(results pgx.BatchResults, last []*sqlstore.Call) error {
	for _, call := range last {
		if !call.Must {
			if err := readCalls(results, []*sqlstore.Call{call}); err != nil {
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
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.over.Swap(true) {
		return nil
	}
	t.endFailed(ctx)
	return nil
}

// endFailed rolls back on the server, so that the connection can be used again; where it can not, the
// connection is closed, which rolls back as well.
func (t *pgxTx) endFailed(ctx context.Context) {
	defer t.release()
	if t.inner == nil || t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.inner.Rollback(ctx) //nolint:errcheck // it closes the connection if it fails
}

func (t *pgxTx) release() {
	if t.conn != nil {
		t.conn.Release()
		t.conn = nil
	}
}

// tooLate is the reason for any error after the time was over.
func (t *pgxTx) tooLate(err error) error {
	if err != nil && t.late.Load() {
		return fmt.Errorf("%w: %w", everonce.ErrTxTooLong, err)
	}
	return err
}
