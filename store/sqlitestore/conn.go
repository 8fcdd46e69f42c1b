package sqlitestore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// connector opens the connections of [Store.DB]. They wait for their turn as writers in the order in which they ask,
// know when their transaction ends, and notice when SQLite ends it.
type connector struct {
	sqldriver.Connector
	db *database
}

func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if err := c.db.checkFile(); err != nil {
		return nil, err
	}
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := base.(baseConn)
	if !ok {
		return nil, errors.Join(errDriver(base), base.Close())
	}
	opened := &conn{baseConn: b, db: c.db, raw: newRawConn(base, c.db.keep)}
	b.RegisterCommitHook(opened.committing)
	b.RegisterRollbackHook(opened.rolledBack)
	return opened, nil
}

// baseConn is the interface of the driver's connections.
type baseConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
	sqldriver.Pinger
	sqlite.HookRegisterer
}

type conn struct {
	baseConn
	db  *database
	raw *rawConn

	mu sync.Mutex // guards tx, and keeps the engine's statements and the end of the transaction apart
	tx *openTx
	// inside is tx for the hooks: SQLite calls them in the middle of a statement, some with mu held and some without.
	inside atomic.Pointer[openTx]
}

// committing is asked by SQLite before each commit, and refuses one by the text of a statement (COMMIT, in a script,
// say) of a transaction that was lent: SQLite rolls back then.
func (c *conn) committing() int32 {
	if tx := c.inside.Load(); tx != nil && tx.lent && !tx.ending.Load() {
		tx.dead.Store(true)
		return 1
	}
	return 0
}

// rolledBack is SQLite's rollback hook: it is called at each end of a transaction that is not a commit.
func (c *conn) rolledBack() {
	if tx := c.inside.Load(); tx != nil {
		tx.dead.Store(true)
	}
}

// openTx is a transaction that holds the writer, from BEGIN IMMEDIATE to its end.
type openTx struct {
	serial int64
	conn   *conn
	// limit ends with the time that the transaction may take; nil where it has no bound.
	limit context.Context
	keys  []driver.RecordID // that it has claimed; guarded by keyLocks
	dead  atomic.Bool       // SQLite has ended it: after an error, or because a statement's text said so
	over  atomic.Bool
	// lent: everonce began it and will end it; ending is set when it does. Work that commits the
	// transaction which it was lent would commit its effect without the record.
	lent   bool
	ending atomic.Bool
}

var serials atomic.Int64

func (t *openTx) ended() bool { return t.over.Load() }

// beginning is handed to BeginTx in its context, by Driver.Begin.
type beginning struct {
	entered bool // the turn is the caller's already
	lent    bool
	limit   context.Context
	ctx     context.Context // bounds BEGIN itself
	tx      *openTx         // set by BeginTx
}

type beginningKey struct{}

func (c *conn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	if opts.ReadOnly {
		return c.baseConn.BeginTx(ctx, opts)
	}
	b, _ := ctx.Value(beginningKey{}).(*beginning)
	if b == nil {
		b = &beginning{ctx: ctx}
	}
	if !b.entered {
		if err := c.db.turn.enter(b.ctx); err != nil {
			return nil, err
		}
	}
	b.entered = false // from here on the turn is the transaction's
	// Not by the driver's BeginTx: what bounds BEGIN there ends a COMMIT too, from its 1.61 on.
	err := c.settle(b.ctx)
	if err == nil {
		err = c.raw.send(b.ctx, &sqldb.Call{Statement: beginImmediate})
	}
	if err != nil {
		_ = c.rollBack() //nolint:errcheck // most often it has not begun; it may have just when its bound ended
		c.db.turn.leave()
		return nil, err
	}
	tx := &openTx{serial: serials.Add(1), conn: c, limit: b.limit, lent: b.lent}
	b.tx = tx
	c.mu.Lock()
	c.tx = tx
	c.mu.Unlock()
	c.inside.Store(tx)
	c.db.opened(tx)
	return tx, nil
}

// settings are the settings that the application may have changed on its connection, and a commit depends on: SQLite
// ignores or refuses a change within a transaction. They are prepared each time, because SQLite sets them then.
var settings = []*sqldb.Statement{
	{Name: "synchronous", Text: "PRAGMA synchronous = FULL"},
	{Name: "foreign_keys", Text: "PRAGMA foreign_keys = ON"},
}

// settle sets the settings of the next transaction.
func (c *conn) settle(ctx context.Context) error {
	for _, st := range settings {
		if err := c.raw.send(ctx, &sqldb.Call{Statement: st}); err != nil {
			return err
		}
	}
	return nil
}

// errLent refuses a commit by whom the transaction was lent to. It was rolled back.
var errLent = errors.New("sqlitestore: the work cannot commit its transaction (return from the work instead)")

// commit commits, and leaves no transaction behind where that fails.
func (c *conn) commit() error {
	err := c.raw.send(context.Background(), &sqldb.Call{Statement: commit})
	if err != nil {
		_ = c.rollBack() //nolint:errcheck // SQLite may have rolled back, which is an error then
	}
	return err
}

func (c *conn) rollBack() error {
	return c.raw.send(context.Background(), &sqldb.Call{Statement: rollback})
}

// Commit ends the transaction. It refuses to commit one that SQLite has ended.
func (t *openTx) Commit() error {
	return t.end(func() error {
		switch {
		case t.dead.Load():
			t.clean()
			return errTxEnded
		case t.lent && !t.ending.Load():
			return errors.Join(errLent, t.conn.rollBack())
		}
		if err := t.conn.db.checkFile(); err != nil {
			return errors.Join(err, t.conn.rollBack())
		}
		return t.conn.commit()
	})
}

// Rollback ends the transaction.
func (t *openTx) Rollback() error {
	return t.end(func() error {
		if t.dead.Load() {
			t.clean()
			return nil
		}
		return t.conn.rollBack()
	})
}

// clean leaves no transaction on the connection of one that has ended: a script may have begun another.
func (t *openTx) clean() {
	_ = t.conn.rollBack() //nolint:errcheck // usually there is no transaction, and that is the error
}

func (t *openTx) end(how func() error) error {
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tx != t {
		return errTxEnded
	}
	err := how()
	c.forget()
	return err
}

// forget lets the next writer in. It is called with mu held.
func (c *conn) forget() {
	tx := c.tx
	c.tx = nil
	c.inside.Store(nil)
	tx.over.Store(true)
	c.db.ended(tx)
	c.db.turn.leave()
}

// Close ends the transaction with the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.RegisterCommitHook(nil) // the driver would hold them, and this connection by them, for as long as the process lives
	c.RegisterRollbackHook(nil)
	err := c.raw.Close()
	if c.tx != nil {
		c.forget()
	}
	return err
}

// inTx prepares a statement in the transaction, if there is one: it is refused if the transaction has
// ended, and interrupted when its time is up.
func (c *conn) inTx(ctx context.Context) (bounded context.Context, tx *openTx, cancel func(), err error) {
	c.mu.Lock()
	tx = c.tx
	c.mu.Unlock()
	switch {
	case tx == nil:
		return ctx, nil, func() {}, nil
	case tx.dead.Load():
		return ctx, nil, func() {}, errTxEnded
	case tx.limit == nil:
		return ctx, tx, func() {}, nil
	}
	bounded, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(tx.limit, func() { end(context.Cause(tx.limit)) })
	return bounded, tx, func() { stop(); end(nil) }, nil
}

// partlyDone is the error of a statement that keeps the rows which it wrote before it failed.
type partlyDone struct{ error }

func (e partlyDone) Unwrap() error { return e.error }

// annotate adds to the error of a statement what the statement left behind. The hooks have already reported what is
// left of its transaction.
func (c *conn) annotate(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK {
		err = errors.Join(errLent, err)
	}
	if class := classify(err).Class; (class == sqldb.ClassConstraint || class == sqldb.ClassUnique) && c.changed() {
		err = partlyDone{err}
	}
	return err
}

// changed reports whether the latest statement has written rows, and not taken them back.
func (c *conn) changed() bool {
	rows, err := c.baseConn.QueryContext(context.Background(), "SELECT changes()", nil)
	if err != nil {
		return true
	}
	defer rows.Close() //nolint:errcheck // it was only read
	n := make([]sqldriver.Value, 1)
	return rows.Next(n) != nil || n[0] != int64(0)
}

func (c *conn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	ctx, _, cancel, err := c.inTx(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	res, err := c.baseConn.ExecContext(ctx, query, args)
	return res, c.annotate(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	ctx, tx, cancel, err := c.inTx(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	if query == whichTransaction {
		return &serialRow{tx: tx}, nil
	}
	rows, err := c.baseConn.QueryContext(ctx, query, args)
	return rows, c.annotate(err)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	s, err := c.baseConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	b, ok := s.(baseStmt)
	if !ok {
		return nil, errors.Join(errDriver(s), s.Close())
	}
	return stmt{b, c}, nil
}

// Prepare is for callers without a context.
func (c *conn) Prepare(query string) (sqldriver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// baseStmt is what the driver's statements can do.
type baseStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// stmt is a prepared statement with the same care.
type stmt struct {
	baseStmt
	conn *conn
}

func (s stmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	ctx, _, cancel, err := s.conn.inTx(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	res, err := s.baseStmt.ExecContext(ctx, args)
	return res, s.conn.annotate(err)
}

func (s stmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	ctx, _, cancel, err := s.conn.inTx(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	rows, err := s.baseStmt.QueryContext(ctx, args)
	return rows, s.conn.annotate(err)
}
