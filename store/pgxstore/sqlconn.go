package pgxstore

import (
	"context"

	"github.com/everonce/everonce/internal/sqlstore"
)

// sqlConn sends the engine's calls one after the other: database/sql cannot pipeline.
type sqlConn struct{ to sqlstore.SQLQuerier }

func (c sqlConn) Send(ctx context.Context, calls ...*sqlstore.Call) error {
	return sqlstore.SendSQL(ctx, c.to, calls...)
}
