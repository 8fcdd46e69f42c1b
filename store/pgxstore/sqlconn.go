package pgxstore

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"
)

// sqlConn sends the engine's calls one after the other: database/sql cannot pipeline.
type sqlConn struct{ to sqldb.SQLQuerier }

func (c sqlConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	return sqldb.SendSQL(ctx, c.to, calls...)
}
