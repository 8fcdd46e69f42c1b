package pgxstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/internal/sqldb"
)

// Outside the application's transactions each Send is a transaction at read committed, because above that isolation
// statements for different keys can make each other fail. On a connection whose default isolation is read committed,
// the statements are sent without a BEGIN. On any other connection they are sent between a BEGIN and a COMMIT, as they
// are sent after a serialization failure at that default: then someone has SET the isolation later, or a pooler has
// lent the connection.

// errStrict: the connection's own isolation is above read committed. Nothing was sent.
var errStrict = errors.New("pgxstore: the connection's own isolation is above read committed")

// again reports whether calls must be sent again at read committed, because they failed with a serialization failure
// before they returned anything. All later calls are sent at read committed in any case.
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
