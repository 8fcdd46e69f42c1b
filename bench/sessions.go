package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// sessionClient is one that has a session, and acknowledges each answer with its next request.
type sessionClient struct {
	id     session.ID
	nonce  session.Nonce
	number uint64
}

// next is the client's next request.
func (c *sessionClient) next() session.Command {
	c.number++
	return session.Command{
		Op: session.Request, Session: c.id, Nonce: c.nonce, Number: c.number, Mark: c.number - 1,
		Fingerprint: sha256.Sum256(sampleBytes), Payload: sampleBytes,
	}
}

// registered begins a session.
func registered[Tx any](ctx context.Context, store *sqlsession.Store[Tx]) (*sessionClient, error) {
	c := &sessionClient{}
	_, _ = rand.Read(c.nonce[:])
	a, err := store.Apply(ctx, &session.Command{Op: session.Register, Nonce: c.nonce}, nil)
	c.id = a.Session
	return c, errors.Join(err, a.Err.Or())
}

// sessionBench is clients with sessions in a database, and the work that is an update there.
type sessionBench[Tx any] struct {
	store string
	mode  string
	tx    *everonce.TxReceiver[Tx]
	trips *atomic.Int64
	work  func(ctx context.Context, tx Tx) ([]byte, error)
	inTx  func(ctx context.Context, work func(tx Tx) error) error
}

// way returns the way of the clients of a contest, each with one request at a time.
func (b *sessionBench[Tx]) way(ctx context.Context, name string, callers int, opts *sqlsession.Options) (*way, error) {
	store, err := sqlsession.New(b.tx, session.Config{Lease: time.Hour}, opts)
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	idle := make(chan *sessionClient, callers)
	for range callers {
		c, err := registered(ctx, store)
		if err != nil {
			return nil, err
		}
		idle <- c
	}
	work := func(ctx context.Context, tx Tx, _ []byte) ([]byte, error) { return b.work(ctx, tx) }
	return &way{name: name, do: func(ctx context.Context, _ int64) error {
		c := <-idle
		defer func() { idle <- c }()
		command := c.next()
		a, err := store.Apply(ctx, &command, work)
		return errors.Join(err, a.Err.Or())
	}}, nil
}

// contests: sessions and keys beside bare commits of the same effect.
func (b *sessionBench[Tx]) contests(ctx context.Context) (all []*contest, err error) {
	for _, callers := range []int{1, 16, 64} {
		single, err := b.way(ctx, "sessions, a commit each", callers, &sqlsession.Options{Batch: 1})
		if err != nil {
			return nil, err
		}
		batched, err := b.way(ctx, "sessions, batches of 64", callers, &sqlsession.Options{Batch: 64})
		if err != nil {
			return nil, err
		}
		bare := &way{name: "bare: BEGIN, UPDATE, COMMIT", do: func(ctx context.Context, _ int64) error {
			return b.inTx(ctx, func(tx Tx) error { _, err := b.work(ctx, tx); return err })
		}}
		keys := &way{name: "a key each: Transact", do: func(ctx context.Context, n int64) error {
			res, err := everonce.Transact(ctx, b.tx, everonce.Key{Scope: everonce.Scope(fmt.Sprint(b.mode, callers)), ID: orderKey(n).ID}, b.work)
			return expect(res.Outcome, everonce.Executed, err)
		}}
		c := &contest{store: b.store, mode: b.mode, callers: callers, trips: b.trips, ways: []*way{bare, single, batched, keys}}
		if callers == 64 {
			c.targets = append(c.targets, batched.atLeast(0.9, bare, b.store+", "+b.mode+", in batches, 64 clients: of bare commits"))
		}
		all = append(all, c)
	}
	return all, nil
}

// sessions are those in SQL databases.
func sessions(ctx context.Context, dir string) (all []*contest, done func() error, err error) {
	var closers []func() error
	done = func() (err error) {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return err
	}
	add := func(some []*contest, err error) error {
		all = append(all, some...)
		return err
	}
	pg, err := openPostgres(ctx, "")
	closers = append(closers, pg.close)
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	if err = add((&sessionBench[pgx.Tx]{"PostgreSQL", "sessions", pg.tx, &pg.trips, pg.work, pg.inTx}).contests(ctx)); err != nil {
		return nil, nil, errors.Join(err, done())
	}
	for _, open := range []func() (*sessionBench[*sql.Tx], func() error, error){
		func() (*sessionBench[*sql.Tx], func() error, error) { return sessionsOnSQL(pg) },
		func() (*sessionBench[*sql.Tx], func() error, error) { return sessionsOnMariaDB(ctx) },
		func() (*sessionBench[*sql.Tx], func() error, error) { return sessionsOnSQLite(ctx, dir) },
	} {
		b, c, err := open()
		closers = append(closers, c)
		if err == nil {
			err = add(b.contests(ctx))
		}
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
	}
	return all, done, nil
}

// sessionsOnSQL is on the same tables through database/sql.
func sessionsOnSQL(pg *pgBench) (*sessionBench[*sql.Tx], func() error, error) {
	db := stdlib.OpenDBFromPool(pg.pool)
	b := &sessionBench[*sql.Tx]{store: "PostgreSQL", mode: "sessions, database/sql", trips: &pg.trips}
	store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: pg.schema})
	if err == nil {
		b.tx, err = everonce.NewTxReceiver(store, nil)
	}
	b.inTx = inSQL(db)
	b.work = func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, pg.charge, mathrand.IntN(accounts)+1)
		return sampleBytes, err
	}
	return b, db.Close, err
}

func sessionsOnMariaDB(ctx context.Context) (*sessionBench[*sql.Tx], func() error, error) {
	m, err := openMariaDB(ctx)
	return &sessionBench[*sql.Tx]{"MariaDB", "sessions", m.tx, &m.trips, m.work, m.inTx}, m.close, err
}

func sessionsOnSQLite(ctx context.Context, dir string) (*sessionBench[*sql.Tx], func() error, error) {
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "sessions.db"), nil)
	if err != nil {
		return nil, func() error { return nil }, err
	}
	b := &sessionBench[*sql.Tx]{store: "SQLite", mode: "sessions", inTx: inSQL(store.DB())}
	b.work = func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 1 WHERE id = ?", mathrand.IntN(accounts)+1)
		return sampleBytes, err
	}
	if b.tx, err = everonce.NewTxReceiver(store, &everonce.Options{StoreTimeout: time.Minute}); err == nil {
		err = fillAccounts(ctx, store.DB())
	}
	return b, store.Close, err
}

func inSQL(db *sql.DB) func(ctx context.Context, work func(tx *sql.Tx) error) error {
	return func(ctx context.Context, work func(tx *sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		if err := work(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
}
