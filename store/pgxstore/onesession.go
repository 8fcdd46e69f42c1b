package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/internal/sqldb"
)

var errOneSession = errors.New("the server is PGlite, which has one session for all connections: locks exclude no other caller (use a PostgreSQL server)")

var readVersion = &sqldb.Statement{Name: "version", Rows: true, Text: "SELECT version()"}

// duplicateStatement is the SQLSTATE of a statement whose name is taken in the session.
const duplicateStatement = "42P05"

// hasSessions refuses a server whose connections are not sessions.
func (d *database) hasSessions(ctx context.Context) error {
	var version string
	err := d.read(ctx, (&sqldb.Call{Statement: readVersion}).ForEach(func(r sqldb.Row) error {
		return r.Scan(&version)
	}))
	if named, ok := errors.AsType[*pgconn.PgError](err); ok && named.Code == duplicateStatement {
		return fmt.Errorf("another connection's prepared statement is in this one's session: the server is PGlite, or a pooler that keeps no statements apart (use a PostgreSQL server, or pgx.QueryExecModeExec): %w", err)
	}
	if err == nil && strings.Contains(version, "PGlite") {
		return errOneSession
	}
	return err
}
