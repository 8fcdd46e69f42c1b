package pgxstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/internal/sqldb"
)

// Outside of the application's transactions each Send is a transaction, at read committed: above it, statements of different keys fail for
// each other's sake. On a connection whose own isolation is that, the statements are sent as they are; on another one, and once one has met
// a serialization failure nevertheless (somebody has SET it later, or a pooler has lent the connection), they are sent with a BEGIN and
// a COMMIT around them.

// errStrict: the connection's own isolation is above read committed. Nothing was sent.
var errStrict = errors.New("pgxstore: the connection's own isolation is above read committed")

// again reports whether calls are to be sent again, now at read committed: they have met a serialization failure before they brought
// anything. What follows is sent so in any case.
func (d *database) again(err error, calls []*sqldb.Call) bool {
	if !isSerialization(err) {
		return false
	}
	d.strict.Store(true)
	for _, call := range calls {
		if call.Affected > 0 {
			return false
		}
	}
	return true
}

// hasOption reports whether a call says how pgx is to send it, which no batch can have.
func hasOption(call *sqldb.Call) bool {
	if len(call.Args) == 0 {
		return false
	}
	_, is := call.Args[0].(pgx.QueryExecMode)
	return is
}

// pgxAlone sends calls outside of the application's transactions.
type pgxAlone struct{ *pgxDriver }

func (c pgxAlone) Send(ctx context.Context, calls ...*sqldb.Call) error {
	conn, known, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	if known.strict || c.strict.Load() {
		return c.readCommitted(ctx, conn, calls)
	}
	err = pgxConn{conn}.Send(ctx, calls...)
	if c.again(err, calls) && !conn.Conn().IsClosed() {
		return c.readCommitted(ctx, conn, calls)
	}
	conn.Release()
	return err
}

// readCommitted sends calls in a transaction at read committed, in one round trip, and releases the connection.
func (c pgxAlone) readCommitted(ctx context.Context, conn *pgxpool.Conn, calls []*sqldb.Call) error {
	if len(calls) != 1 || !hasOption(calls[0]) {
		return (&pgxTx{driver: c.pgxDriver, conn: conn, level: beginReadCommitted}).Commit(ctx, calls...)
	}
	defer conn.Release()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return pgxConn{tx}.Send(ctx, calls...) })
}

// sqlAlone is pgxAlone through database/sql, which takes three round trips for a transaction.
type sqlAlone struct{ *sqlDriver }

func (c sqlAlone) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if c.strict.Load() {
		return c.readCommitted(ctx, calls)
	}
	for i, call := range calls {
		switch err := c.sendOne(ctx, call); {
		case errors.Is(err, errStrict):
			c.strict.Store(true) // of all connections: pgx forgets the prepared statement at such an error
			return c.readCommitted(ctx, calls[i:])
		case c.again(err, calls[i:i+1]):
			return c.readCommitted(ctx, calls[i:])
		case err != nil:
			return err
		}
	}
	return nil
}

// sendOne sends a call, if the connection that it comes to is at read committed.
func (c sqlAlone) sendOne(ctx context.Context, call *sqldb.Call) error {
	sent := *call
	if c.asks {
		sent.Args = append([]any{admission{c.database}}, call.Args...)
	}
	err := sqlConn{c.db}.Send(ctx, &sent)
	call.Affected = sent.Affected
	return err
}

func (c sqlAlone) readCommitted(ctx context.Context, calls []*sqldb.Call) error {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := (sqlConn{tx}).Send(ctx, calls...); err != nil {
		return err
	}
	return tx.Commit()
}
