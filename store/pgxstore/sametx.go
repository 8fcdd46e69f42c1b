package pgxstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/internal/sqlstore"
)

// Work can end the transaction that it was lent by the text of a statement, and begin another: nothing on this side notices. So what
// saves a result says in which transaction it must be, and fails in any other.
//
// A transaction is known by its beginning, which no savepoint changes and nobody can set. A claim reads it; what comes after the
// claim's answer begins later. Where nothing is claimed there is no answer to read it from: there BEGIN takes a mark along, a
// setting that ends with the transaction, whether that is committed or rolled back, chained or not. To set it takes no snapshot, so
// that the work may still choose the isolation, or lock a table, before its first query.

// txNumber is when the transaction began, in microseconds.
const txNumber = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"

// setMark marks a transaction. The setting is of the kind that a session makes up; everybody may set it.
const setMark = "set local everonce.tx = 'begun'"

const isMarked = "current_setting('everonce.tx', true) = 'begun'"

const txEnded = "everonce: not the transaction that was begun"

// sameTx is [sqlstore.Dialect.SameTx]. It raises its error as what finds nothing to write does.
func sameTx(n string) string {
	return "CASE WHEN CASE " + n + " WHEN 0 THEN true WHEN -1 THEN " + isMarked + " ELSE " + n + " = " + txNumber + " END" +
		" THEN true ELSE " + castToFail(txEnded, "boolean") + " END"
}

// checkMark is what a commit sends ahead that has nothing else to save.
var checkMark = &sqlstore.Statement{Name: "check_mark", Rows: true, Text: "SELECT 1 WHERE " + sameTx("-1")}

// errTxEnded says that the connection is in no transaction, where one was lent.
var errTxEnded = errors.New("pgxstore: the connection is in no transaction any more")

// noTx is the SQLSTATE of what needs a transaction, as a savepoint does, and finds none.
const noTx = "25P01"

// isTxEnded recognises a transaction that the work has ended.
func isTxEnded(err error) bool {
	if errors.Is(err, errTxEnded) {
		return true
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == noTx || pgErr.Code == castFailed && strings.Contains(pgErr.Message, txEnded))
}

// askTx, as the argument of a statement, asks a connection, also through database/sql, whether a commit could be sent. The
// statement never is.
type askTx struct{}

var errAsked = errors.New("pgxstore: it was only asked")

// RewriteQuery is for [pgx.QueryRewriter].
func (askTx) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	switch {
	case conn.PgConn().TxStatus() == 'I':
		return "", nil, errTxEnded
	case conn.PgConn().IsBusy():
		return "", nil, errRowsOpen
	}
	return "", nil, errAsked
}
