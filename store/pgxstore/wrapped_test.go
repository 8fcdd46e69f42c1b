package pgxstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// wrapped opens connections of pgx behind a driver of another name, as a driver that traces statements does. Their type
// is unknown elsewhere, and they take only arguments that database/sql knows.
type wrapped struct{ sqldriver.Connector }

func (w wrapped) Driver() sqldriver.Driver { return w }

func (wrapped) Open(string) (sqldriver.Conn, error) { return nil, sqldriver.ErrSkip }

func (w wrapped) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return wrappedConn{conn.(pgxConn)}, nil
}

// pgxConn is what of pgx's connections comes through the wrapping.
type pgxConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.Pinger
	sqldriver.SessionResetter
}

type wrappedConn struct{ pgxConn }

func newWrapped(t testing.TB, s setup) *handle[*sql.Tx] {
	t.Helper()
	config, err := pgx.ParseConfig(serverURL(t))
	noErr(t, err)
	db := sql.OpenDB(wrapped{stdlib.GetConnector(*config)})
	t.Cleanup(func() { _ = db.Close() })
	return sqlHandle(t, db, s)
}
