package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// pgxDriver reaches the database through a pgx pool.
type pgxDriver struct {
	*database
	pool *pgxpool.Pool
	name string // of the database, for Join
	// keeps says that connections keep prepared statements, and with them their plans.
	keeps bool
}

func newPgxDriver(pool *pgxpool.Pool, opts *Options) (*pgxDriver, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", driver.ErrInvalidArgument)
	}
	db, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	config := pool.Config().ConnConfig
	d := &pgxDriver{database: db, pool: pool, name: config.Database, keeps: config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement}
	db.read = d.Read
	return d, nil
}

func (d *pgxDriver) Read(ctx context.Context, calls ...*sqldb.Call) error {
	d.unprepared(calls)
	return pgxAlone{d}.Send(ctx, calls...)
}

func (d *pgxDriver) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	conn := freshConn{pgxAlone{d}, d.keeps}
	return sqldb.Repeat(ctx, classify, func() error { return op(ctx, conn) })
}

// freshConn has statements planned at each call that ask for it, if the pool keeps prepared ones.
type freshConn struct {
	pgxAlone
	keeps bool
}

func (c freshConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if c.keeps && len(calls) == 1 && calls[0].Statement.Fresh {
		calls[0].Args = append([]any{pgx.QueryExecModeCacheDescribe}, calls[0].Args...)
	}
	return c.pgxAlone.Send(ctx, calls...)
}

func (d *pgxDriver) Exclusive(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		conn := pgxConn{tx}
		for _, call := range d.exclusively() { // one after the other: the second looks at what the first waited for
			if err := conn.Send(ctx, call); err != nil {
				return err
			}
		}
		return op(ctx, conn)
	})
}

func (d *pgxDriver) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[pgx.Tx], error) {
	conn, _, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx := &pgxTx{driver: d, conn: conn, level: d.begin}
	// Nothing else ends a statement that runs: closing the connection does, and the server rolls back.
	socket := conn.Conn().PgConn().Conn()
	tx.limit = sqldb.NewLimit(opts.Timeout, func() {
		_ = socket.Close() //nolint:errcheck // the statement that it cuts short tells
	})
	tx.lent = &lentTx{of: tx}
	if len(first) == 0 { // it begins with what is sent first
		return tx, nil
	}
	if err := tx.Send(ctx, first...); err != nil {
		_ = tx.Rollback(ctx) //nolint:errcheck // the earlier error is returned
		return nil, err
	}
	return tx, nil
}

func (d *pgxDriver) Join(ctx context.Context, tx pgx.Tx) (sqldb.TxConn[pgx.Tx], error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalidArgument)
	}
	if lent, ok := tx.(*lentTx); ok && lent.of.driver.name == d.name { // our own: what is sent first takes BEGIN along
		if lent.of.driver.settingsKey != d.settingsKey && !lent.of.over.Load() { // another store's
			if _, err := d.admit(ctx, lent.of.conn.Conn()); err != nil {
				return nil, err
			}
		}
		return &joinedTx[pgx.Tx]{Conn: lent.of, tx: tx}, nil
	}
	if conn := tx.Conn(); conn != nil {
		if conn.Config().Database != d.name {
			return nil, fmt.Errorf("%w: it is on another database", driver.ErrOtherStore)
		}
		if _, ok := d.known(conn); !ok { // through the transaction, which refuses if it has ended
			if _, err := tx.Exec(ctx, "", admissionInTx{d.database}); err != nil && !errors.Is(err, errAsked) {
				return nil, err
			}
		}
	}
	return &joinedTx[pgx.Tx]{Conn: pgxConn{tx}, tx: tx}, nil
}
