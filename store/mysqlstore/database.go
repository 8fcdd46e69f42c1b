package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// database reaches the server through database/sql.
type database struct {
	db         *sql.DB
	level      sql.IsolationLevel
	tables     tables
	dialect    *sqldb.Dialect
	statements *sqlstore.Statements
	migrations [][]string
	alone      map[*sqldb.Statement]bool // those that lock one record at most: they need no transaction
	kept       map[*sqldb.Statement]bool // those that stay prepared

	prepared sync.Map // *sqldb.Statement → *prepared
	about    atomic.Pointer[server]
}

// server is what the driver must know about a server.
type server struct {
	mariaDB   bool
	undoesAll bool // a lock timeout ends the transaction: innodb_rollback_on_timeout
	snapshots bool // a session may refuse to lock what is newer than its snapshot: there is an innodb_snapshot_isolation
}

func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

func newDatabase(opts *Options) (*database, error) {
	t, level, err := opts.settings()
	if err != nil {
		return nil, err
	}
	d := &database{level: level, tables: t, dialect: newDialect(&t), migrations: migrations(t)}
	d.statements = newStatements(&t, d.dialect)
	s := d.statements
	d.alone, d.kept = make(map[*sqldb.Statement]bool), make(map[*sqldb.Statement]bool)
	for _, st := range []*sqldb.Statement{s.Claim, s.Read, s.ReadSteps, s.Swap, s.Insert, s.Complete, s.Release, s.Renew, s.Remove, s.ChooseOver, s.ChooseGone, s.ChooseScope, s.ScopeLeft, s.Meta.Get, s.Meta.Put} {
		d.alone[st] = true
	}
	for _, st := range []*sqldb.Statement{
		s.Claim, s.Read, s.ReadLocked, s.Brief, s.ReadSteps, s.Swap, s.Complete, s.Release, s.Renew,
		s.SaveStep, s.PutStep, s.PutStep.Else, s.PurgeResults, s.PurgeRecords, s.DropOrphans, s.PutStepOnce, s.PutStepOnce.Else, s.Lock, s.Finish, s.FinishOver, s.FinishOver.Else, s.FinishLocked, s.FinishLocked.Else,
	} {
		d.kept[st] = true
	}
	return d, nil
}

func (d *database) Dialect() *sqldb.Dialect            { return d.dialect }
func (d *database) Statements() *sqlstore.Statements   { return d.statements }
func (d *database) Migrations() [][]string             { return d.migrations }
func (d *database) Classify(err error) sqldb.ErrorInfo { return classify(err) }

func (d *database) Read(ctx context.Context, calls ...*sqldb.Call) error {
	return (&conn{database: d, q: d.db}).Send(ctx, calls...)
}

// Write runs op, each Send of which is a transaction, until the server does not undo it for the sake of another.
func (d *database) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return sqldb.Repeat(ctx, classify, func() error { return op(ctx, writer{d}) })
}

// writer makes a transaction of each Send, but of a single statement that locks no more than one record. It is at read
// committed: above that, what looks through an index locks the gaps in it, where others want to insert.
type writer struct{ *database }

func (w writer) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if len(calls) == 1 && w.alone[calls[0].Statement] {
		return (&conn{database: w.database, q: w.db}).Send(ctx, calls...)
	}
	for _, call := range calls {
		w.prepare(ctx, call.Statement)
	}
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return settings(err)
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := (&conn{database: w.database, q: tx, tx: tx}).Send(ctx, calls...); err != nil {
		return err
	}
	return commit(ctx, tx, nil)
}

// exclusiveWait is how many seconds a migration waits for another one.
const exclusiveWait = 600

func (d *database) Exclusive(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	session, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer session.Close() //nolint:errcheck // it goes back to the pool
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.tables.record))
	// The name of a lock is the whole server's. Two databases that share one only wait for each other.
	name := fmt.Sprintf("everonce/migrate/%x", h.Sum64())
	var got sql.NullInt64
	if err := session.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, exclusiveWait).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another migration has not ended in time")
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_, _ = session.ExecContext(ctx, "DO RELEASE_LOCK(?)", name) //nolint:errcheck // the lock ends with the session
	}()
	return op(ctx, migrating{&conn{database: d, q: session}})
}

// migrating sends the statements of a migration, each of which commits alone. After a broken migration, the statements
// that were executed remain.
type migrating struct{ *conn }

func (m migrating) Send(ctx context.Context, calls ...*sqldb.Call) error {
	for _, call := range calls {
		if err := m.conn.Send(ctx, call); err != nil && !isNumber(err, indexName) {
			return err
		}
	}
	return nil
}

// known returns what the driver must know about the server, and asks through q the first time.
func (d *database) known(ctx context.Context, q sqldb.SQLQuerier) (*server, error) {
	if s := d.about.Load(); s != nil {
		return s, nil
	}
	var version string
	s := new(server)
	ask := &sqldb.Call{Statement: readServer, Each: func(r sqldb.Row) error { return r.Scan(&version, &s.undoesAll, &s.snapshots) }}
	if err := sqldb.SendSQL(ctx, q, ask); err != nil {
		return nil, settings(err)
	}
	s.mariaDB = isMariaDB(version)
	d.about.Store(s)
	return s, nil
}

// text is a statement's as this server wants it: see [sqldb.Guarded] and [latest].
func (d *database) text(text string) string {
	text = sqldb.Guarded(text)
	if s := d.about.Load(); s != nil && s.snapshots {
		return latest(text)
	}
	return text
}

// latest has a statement that writes or locks see the latest rows, as it does by default before MariaDB 11.6.2, for
// itself alone. The caller's own statements are the caller's.
func latest(text string) string {
	if !strings.Contains(text, "INSERT") && !strings.Contains(text, "UPDATE") && !strings.Contains(text, "DELETE") {
		return text
	}
	const set, off = "SET STATEMENT ", "innodb_snapshot_isolation = 0"
	if before, after, is := strings.Cut(text, set); is {
		return before + set + off + ", " + after
	}
	return set + off + " FOR " + text
}

// readServer asks whether the server is MariaDB, and has a variable that not every one has.
var readServer = &sqldb.Statement{
	Name: "server", Rows: true,
	Text: sqldb.Guarded("SELECT VERSION(), @@innodb_rollback_on_timeout," +
		" /*M! (SELECT count(*) FROM information_schema.session_variables WHERE variable_name = 'innodb_snapshot_isolation') + */ 0"),
}

// settings explains the error of a statement in a session that it refuses.
func settings(err error) error {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	switch {
	case !ok:
	case answer.Number == inTx:
		return fmt.Errorf("mysqlstore: the connection has a transaction that nothing commits: autocommit is 0, completion_type is not NO_CHAIN, or it was left open (set both to their defaults): %w", err)
	case answer.Number == outOfRange:
		if bad := sqldb.Unguarded(answer.Message); bad != "" {
			return fmt.Errorf("mysqlstore: the session cannot be used: %s: %w", bad, err)
		}
	}
	return err
}

// errNotOurs is what the end of a joined transaction answers; the engine never asks for it.
var errNotOurs = errors.New("mysqlstore: the caller must end its own transaction")

// Join wraps a transaction of the caller's: the engine never ends it.
func (d *database) Join(ctx context.Context, tx *sql.Tx) (sqldb.TxConn[*sql.Tx], error) {
	if tx == nil {
		return nil, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalidArgument)
	}
	if d.foreign(ctx, tx) {
		return nil, fmt.Errorf("%w: it belongs to another *sql.DB than the store", driver.ErrOtherStore)
	}
	return &joinedTx{conn{database: d, q: tx, tx: tx}}, nil
}

// foreign reports whether a transaction is surely of another *sql.DB: database/sql refuses a statement in it that is
// prepared on this one. Of the right one it refuses the number of arguments. Nothing is sent but what prepares the
// statement on the connection.
func (d *database) foreign(ctx context.Context, tx *sql.Tx) bool {
	p, ok := d.prepared.Load(d.statements.Lock)
	if !ok {
		return false
	}
	_, err := tx.StmtContext(ctx, p.(*prepared).stmt).ExecContext(ctx)
	return err != nil && strings.Contains(err.Error(), "different database")
}

type joinedTx struct{ conn }

func (t *joinedTx) Tx() *sql.Tx                                  { return t.tx }
func (t *joinedTx) Commit(context.Context, ...*sqldb.Call) error { return errNotOurs }
func (t *joinedTx) Rollback(context.Context) error               { return errNotOurs }
