package pgxstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// sqlDriver reaches the database through database/sql.
type sqlDriver struct {
	*database
	db   *sql.DB
	asks bool // its connections report whether they are in a transaction: askTx
}

func newSQLDriver(db *sql.DB, opts *Options) (*sqlDriver, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: the database handle is nil", driver.ErrInvalidArgument)
	}
	shared, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	d := &sqlDriver{database: shared, db: db}
	_, d.asks = db.Driver().(*stdlib.Driver)
	shared.read = d.Read
	return d, nil
}

func (d *sqlDriver) Read(ctx context.Context, calls ...*sqldb.Call) error {
	if d.asks {
		d.unprepared(calls)
	}
	return sqlAlone{d}.Send(ctx, calls...)
}

func (d *sqlDriver) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return sqldb.Repeat(ctx, classify, func() error { return op(ctx, sqlAlone{d}) })
}

func (d *sqlDriver) Exclusive(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	conn := sqlConn{tx}
	if err := conn.Send(ctx, d.exclusively()...); err != nil {
		return err
	}
	if err := op(ctx, conn); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *sqlDriver) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[*sql.Tx], error) {
	// database/sql rolls back when the context of BeginTx ends, so that must not be the caller's. It is
	// the caller's as long as Begin runs.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	tx := &sqlTx{life: life, end: end, asks: d.asks}
	tx.limit = sqldb.NewLimit(opts.Timeout, end)
	inner, err := d.db.BeginTx(life, &sql.TxOptions{Isolation: d.level})
	if err == nil {
		tx.inner = inner
		err = d.admitted(life, inner)
	}
	if err == nil {
		err = sqlConn{inner}.Send(life, first...)
	}
	if !release() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = tx.Rollback(ctx)  //nolint:errcheck // the earlier error is returned
		if ctx.Err() != nil { // what cut it short, not what that looked like
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, tx.limit.Reason(err)
	}
	return tx, nil
}

// admitted admits the connection of a transaction, if it can be seen.
func (d *sqlDriver) admitted(ctx context.Context, tx *sql.Tx) error {
	if !d.asks {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "", admissionInTx{d.database}); !errors.Is(err, errAsked) && !errors.Is(err, errHidden) {
		return err
	}
	return nil
}

func (d *sqlDriver) Join(ctx context.Context, tx *sql.Tx) (sqldb.TxConn[*sql.Tx], error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalidArgument)
	}
	if err := d.admitted(ctx, tx); err != nil {
		return nil, err
	}
	return &joinedTx[*sql.Tx]{Conn: sqlConn{tx}, tx: tx}, nil
}

// sqlTx is a transaction that the store began.
type sqlTx struct {
	inner *sql.Tx
	life  context.Context    //nolint:containedctx // what the transaction lives in
	end   context.CancelFunc // ends it
	limit sqldb.Limit
	asks  bool
	over  bool // it has ended
}

func (t *sqlTx) Tx() *sql.Tx { return t.inner }

func (t *sqlTx) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if t.over {
		return t.limit.Reason(sql.ErrTxDone)
	}
	return t.limit.Reason(sqlConn{t.inner}.Send(ctx, calls...))
}

func (t *sqlTx) Commit(ctx context.Context, last ...*sqldb.Call) error {
	if t.over {
		return t.limit.Reason(sql.ErrTxDone)
	}
	if err := t.status(); err != nil {
		_ = t.rollback() //nolint:errcheck // the earlier error is returned
		return t.limit.Reason(err)
	}
	if err := (sqlConn{t.inner}).Send(ctx, last...); err != nil {
		if ended := t.status(); ended != nil { // by a goroutine that the work has left behind
			err = ended
		}
		// database/sql calls a connection bad through which nothing can be sent. One that can be rolled back was only busy.
		if alive := t.rollback() == nil; alive && errors.Is(err, sqldriver.ErrBadConn) {
			err = errRowsOpen
		}
		return t.limit.Reason(beforeCommit(err))
	}
	if err := ctx.Err(); err != nil { // nothing of the commit was sent
		_ = t.Rollback(ctx) //nolint:errcheck // the earlier error is returned
		return err
	}
	if !t.limit.Stop() { // from here on it is the commit that decides
		_ = t.Rollback(ctx) //nolint:errcheck // the earlier error is returned
		return t.limit.Reason(sql.ErrTxDone)
	}
	// Commit takes no context: the transaction's own is ended where the caller's does.
	release := context.AfterFunc(ctx, t.end)
	defer release()
	defer t.end()
	t.over = true
	err := t.inner.Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone) && t.life.Err() == nil: // it had ended before: nothing was sent
		return err
	case commitLost(err):
		return fmt.Errorf("%w: %w", sqldb.ErrCommitLost, err)
	}
	return err
}

func (t *sqlTx) Rollback(context.Context) error {
	_ = t.rollback() //nolint:errcheck // a connection that cannot roll back is closed, so that the server rolls back
	return nil
}

// status returns why nothing can be committed, as far as the connection shows without sending anything.
func (t *sqlTx) status() error {
	if t.over || !t.asks || t.life.Err() != nil {
		return nil
	}
	_, err := t.inner.ExecContext(context.Background(), "", askTx{})
	if errors.Is(err, errNoTx) || errors.Is(err, errRowsOpen) {
		return err
	}
	return nil
}

func (t *sqlTx) rollback() error {
	t.limit.Stop()
	defer t.end()
	if t.over || t.inner == nil {
		return nil
	}
	t.over = true
	bound := time.AfterFunc(rollbackTimeout, t.end)
	defer bound.Stop()
	return t.inner.Rollback()
}
