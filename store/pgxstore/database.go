package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// rollbackTimeout bounds a rollback that is sent to the server; afterwards the connection is closed.
const rollbackTimeout = 5 * time.Second

// beginTimeout bounds a BEGIN that is sent for a method without a context.
const beginTimeout = 5 * time.Second

// exclusively are the first calls of a migration: they wait for the lock that only migrations take. The transaction
// must be at read committed: above it the snapshot is older than the lock, and does not see what the holder before has
// made.
func (d *database) exclusively() []*sqldb.Call {
	lock := func(name string) *sqldb.Call {
		return &sqldb.Call{
			Statement: &sqldb.Statement{Name: "exclusive", Text: "SELECT pg_advisory_xact_lock($1::bigint)"},
			Args:      []any{lockNumber(name)},
		}
	}
	calls := []*sqldb.Call{lock("everonce/migrate/" + d.tables.record)}
	if text := createSchema(d.tables); text != "" {
		// Stores with other prefixes make the same schema, and the database refuses the second that does so at once.
		calls = append(calls, lock("everonce/schema/"+d.tables.schema),
			&sqldb.Call{Statement: &sqldb.Statement{Name: "create_schema", Text: text}})
	}
	return calls
}

// database holds what both drivers share: the statements and the tables.
type database struct {
	*settings
	dialect    *sqldb.Dialect
	statements *sqlstore.Statements
	migrations [][]string
	must       mustTexts
	read       func(ctx context.Context, calls ...*sqldb.Call) error
	strict     atomic.Bool            // a statement outside of a transaction failed with a serialization failure
	schema     atomic.Pointer[string] // in which the first connection has found the tables

	settingsKey string // under which a connection keeps its known
}

func newDatabase(opts *Options) (*database, error) {
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	d := &database{settings: s, settingsKey: "everonce/" + s.tables.record}
	d.dialect = newDialect(s)
	d.statements = d.newStatements()
	d.migrations = migrations(s.tables)
	return d, nil
}

func (d *database) Dialect() *sqldb.Dialect            { return d.dialect }
func (d *database) Statements() *sqlstore.Statements   { return d.statements }
func (d *database) Migrations() [][]string             { return d.migrations }
func (d *database) Classify(err error) sqldb.ErrorInfo { return classify(err) }

// unprepared has the questions that come before all tables sent without a name for their texts. PgBouncer, from 1.21
// on, takes the name of a text that the server refused for taken, and ends the connection at which it comes again
// (pgbouncer/pgbouncer#1118).
func (d *database) unprepared(calls []*sqldb.Call) {
	for _, call := range calls {
		if first := call.Statement == d.statements.Meta.Get || call.Statement == readVersion; first && !hasOption(call) {
			call.Args = append([]any{pgx.QueryExecModeExec}, call.Args...)
		}
	}
}

func lockNumber(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits
}

// errNotOurs is what the end of a joined transaction answers; the engine never asks for it.
var errNotOurs = errors.New("pgxstore: the caller must end its own transaction")

// errBroken says that the connection was gone before the commit was sent: all of the transaction was undone.
var errBroken = errors.New("the connection broke before the commit was sent")

// errRowsOpen says why a commit could not be sent: the transaction is rolled back.
var errRowsOpen = errors.New("pgxstore: the work left rows open (read them to the end or close them)")

// beforeCommit gives an error of what comes before the commit its meaning.
func beforeCommit(err error) error {
	if err != nil && classify(err).Class == sqldb.ClassUnavailable {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return err
}

// joinedTx is a transaction of the caller's: the engine never ends it.
type joinedTx[Tx any] struct {
	sqldb.Conn
	tx Tx
}

func (t *joinedTx[Tx]) Tx() Tx                                       { return t.tx }
func (t *joinedTx[Tx]) Commit(context.Context, ...*sqldb.Call) error { return errNotOurs }
func (t *joinedTx[Tx]) Rollback(context.Context) error               { return errNotOurs }

// commitLost reports whether an error that came instead of a commit's answer leaves it open. Only the
// server's own refusal does not: an error of the connection says nothing about how far the packets came,
// whatever a client library says about it.
func commitLost(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return false
	}
	pgErr, answered := errors.AsType[*pgconn.PgError](err)
	if answered && pgErr.Code == idleTooLong {
		return false // the session was ended as it waited for a statement: the commit did not come to it
	}
	return !answered || !classify(err).NotDone
}
