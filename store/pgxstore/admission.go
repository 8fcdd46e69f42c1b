package pgxstore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// known holds the settings of a connection at its first use.
type known struct {
	strict bool // its own isolation is above read committed
}

// settingsText asks a connection for its settings.
func (d *database) settingsText() string {
	found := "''"
	if d.tables.schema == "" {
		found = "coalesce((SELECT n.nspname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace " +
			"WHERE c.oid = to_regclass('" + d.tables.record + "')), '')"
	}
	return "SELECT current_setting('default_transaction_isolation'), current_setting('bytea_output'), current_setting('array_nulls'), " + found
}

// admit reads the settings of a connection at its first use, and refuses those with which statements would mean
// something else. It takes a round trip then, and none later.
func (d *database) admit(ctx context.Context, conn *pgx.Conn) (known, error) {
	if k, ok := d.known(conn); ok {
		return k, nil
	}
	var isolation, bytes, nulls, schema string
	// The only mode that needs neither a named statement nor its own settings.
	if err := conn.QueryRow(ctx, d.settingsText(), pgx.QueryExecModeExec).Scan(&isolation, &bytes, &nulls, &schema); err != nil {
		return known{}, err
	}
	refuse := func(what, todo string) error {
		return fmt.Errorf("a connection has %s (%s)", what, todo)
	}
	switch mode := conn.Config().DefaultQueryExecMode; {
	case bytes != "hex" && (mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol):
		return known{}, refuse("bytea_output "+bytes+", and pgx reads bytes as hex in this QueryExecMode", "set it to hex")
	case nulls != "on":
		return known{}, refuse("array_nulls off, with which a NULL in an array is a text", "set it to on")
	case schema != "" && !d.schema.CompareAndSwap(nil, &schema) && *d.schema.Load() != schema:
		return known{}, refuse("a search_path that finds the tables of schema "+schema+", while other connections find the tables of schema "+*d.schema.Load(), "set Options.Schema")
	}
	k := known{strict: !strings.HasPrefix(isolation, "read ")}
	knowing.Lock()
	defer knowing.Unlock()
	conn.PgConn().CustomData()[d.settingsKey] = k
	return k, nil
}

// knowing guards the known values of all connections, because a transaction that has ended may still read one.
var knowing sync.RWMutex

// known returns what the database has recorded about a connection, if it was admitted.
func (d *database) known(conn *pgx.Conn) (known, bool) {
	knowing.RLock()
	defer knowing.RUnlock()
	k, ok := conn.PgConn().CustomData()[d.settingsKey].(known)
	return k, ok
}

// acquire takes a connection from the pool.
func (d *pgxDriver) acquire(ctx context.Context) (*pgxpool.Conn, known, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, known{}, err
	}
	k, err := d.admit(ctx, conn.Conn())
	if err != nil {
		conn.Release()
		return nil, known{}, err
	}
	return conn, k, nil
}

// admission, as the first argument of a statement, admits the connection that it comes to through database/sql.
type admission struct{ to *database }

// RewriteQuery is for [pgx.QueryRewriter].
func (a admission) RewriteQuery(ctx context.Context, conn *pgx.Conn, text string, args []any) (string, []any, error) {
	k, err := a.to.admit(ctx, conn)
	if err == nil && k.strict {
		err = errStrict
	}
	return text, args, err
}

// admissionInTx is an admission for a transaction that has been begun, at whatever isolation. The statement is never
// sent: errAsked.
type admissionInTx admission

var errHidden = errors.New("pgxstore: the driver is not pgx's")

// Value is for [sqldriver.Valuer], which a driver asks that is not pgx's: nothing is sent through it.
func (admissionInTx) Value() (sqldriver.Value, error) { return nil, errHidden }

// RewriteQuery is for [pgx.QueryRewriter].
func (a admissionInTx) RewriteQuery(ctx context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	if _, err := a.to.admit(ctx, conn); err != nil {
		return "", nil, err
	}
	return "", nil, errAsked
}
