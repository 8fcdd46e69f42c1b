package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// errNoTx says that the connection is in no transaction: its first statement failed, or the work has ended it, which it
// must not.
var errNoTx = errors.New("pgxstore: there is no transaction to commit")

// askTx, as the argument of a statement, asks a connection, also through database/sql, whether a commit could be sent.
// The statement never is.
type askTx struct{}

var errAsked = errors.New("pgxstore: the commit was only probed")

// RewriteQuery is for [pgx.QueryRewriter].
func (askTx) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	switch {
	case conn.PgConn().TxStatus() == 'I':
		return "", nil, errNoTx
	case conn.PgConn().IsBusy():
		return "", nil, errRowsOpen
	}
	return "", nil, errAsked
}
