package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"github.com/everonce/everonce/internal/sqldb"
)

// beside is the database as packages use it that keep tables beside the store's: outbox, inbox and saga.
type beside struct {
	*database
	dialect *sqldb.Dialect
}

// SQL returns the database for tables beside the store's.
func (s store) SQL() sqldb.DB[*sql.Tx] { return s.beside }

func newBeside(d *database) *beside {
	dialect := *d.dialect
	dialect.OneStatement = false
	return &beside{d, &dialect}
}

func (b *beside) Dialect() *sqldb.Dialect { return b.dialect }

// Write runs op in one transaction, until the server does not undo it for the sake of another. It is at read committed:
// above that, what looks through an index locks the gaps in it, where others want to insert.
func (b *beside) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	var sent []*sqldb.Statement
	err := sqldb.Repeat(ctx, classify, func() error {
		tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return settings(err)
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		c := &noting{conn: conn{database: b.database, q: tx, tx: tx}}
		err = op(ctx, c)
		sent = c.sent
		if err != nil {
			return err
		}
		return commit(ctx, tx, nil)
	})
	for _, st := range sent { // within the transaction it would have taken a second connection
		b.prepare(ctx, st)
	}
	return err
}

// WriteOne is Write of one call, without statements that begin and end a transaction.
func (b *beside) WriteOne(ctx context.Context, call *sqldb.Call) error {
	if call.Statement.Keep { // it may stay prepared, for any connection
		return b.Write(ctx, func(ctx context.Context, c sqldb.Conn) error { return c.Send(ctx, call) })
	}
	return sqldb.Repeat(ctx, classify, func() error {
		session, err := b.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer session.Close() //nolint:errcheck // it goes back to the pool
		c := &conn{database: b.database, q: session}
		if _, err = c.known(ctx, session); err == nil {
			_, err = session.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED") // of the next one
			err = settings(err)
		}
		if err == nil {
			err = c.Send(ctx, call)
		}
		if err != nil { // the level may apply to the next user of the connection
			_ = session.Raw(func(any) error { return sqldriver.ErrBadConn }) //nolint:errcheck // that closes it
		}
		return err
	})
}

// noting notes which statements that are sent often are not prepared yet.
type noting struct {
	conn
	sent []*sqldb.Statement
}

func (c *noting) Send(ctx context.Context, calls ...*sqldb.Call) error {
	for _, call := range calls {
		if _, known := c.prepared.Load(call.Statement); !known && call.Statement.Keep {
			c.sent = append(c.sent, call.Statement)
		}
	}
	return c.conn.Send(ctx, calls...)
}

// Join wraps a transaction of the caller's.
func (b *beside) Join(ctx context.Context, tx *sql.Tx) (sqldb.TxConn[*sql.Tx], error) {
	joined, err := b.database.Join(ctx, tx)
	if err != nil {
		return nil, err
	}
	return besideTx{joined.(*joinedTx)}, nil //nolint:forcetypeassert // it is no other
}

// besideTx makes sure that the transaction is still one before it writes in it.
type besideTx struct{ *joinedTx }

func (t besideTx) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if err := t.alive(ctx); err != nil {
		return err
	}
	return t.joinedTx.Send(ctx, calls...)
}
