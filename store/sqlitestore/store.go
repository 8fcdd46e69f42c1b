package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Options are the options of [Open]. The zero value of each field is its default.
type Options struct {
	// TablePrefix begins the names of the tables: a-z, 0-9 and _, and not sqlite_. Default "everonce_".
	TablePrefix string
	// BusyTimeout is how long a write waits for a writer in another process, and a transaction for another one in
	// this process. Default 5 s.
	BusyTimeout time.Duration
	// Readers is the number of concurrent readers. Default 4, or the number of processors if that is more.
	Readers int
	// GroupLimit is the largest number of writes that share a commit. Default 256; 1 gives each its own.
	GroupLimit int
	// NoMigrate does not create the tables: see [Store.Schema].
	NoMigrate bool

	clock func() time.Time // for tests
}

const (
	defaultPrefix      = "everonce_"
	defaultBusyTimeout = 5 * time.Second
	defaultReaders     = 4
	defaultGroupLimit  = 256
	openTimeout        = 30 * time.Second
)

// Store keeps records in a SQLite file, and commits them together with what the application writes through a *sql.Tx.
// It is a [driver.TxStore] of *sql.Tx, and safe for concurrent use.
type Store struct {
	*engine
	db *database
}

// engine has the methods that a receiver calls.
type engine = sqlstore.Store[*sql.Tx]

// Open opens the database file at path and returns a store in it. It creates the file and the tables if they do not
// exist. Several processes on the same machine may open the same file. Only the owner can read and write a file that
// Open creates; an existing file keeps its mode.
//
// Open may wait for another process that writes to the file: up to Options.BusyTimeout at each step, and 30 s in all.
// If ctx ends first, Open returns an error that wraps [driver.ErrStore] and the cause of ctx. A step that is still
// waiting ends within Options.BusyTimeout, and the file is closed. After Open ctx has no effect on the store.
//
// path is a plain file name. Open returns [driver.ErrInvalidArgument] for a database in memory: use store/memstore.
func Open(ctx context.Context, path string, opts *Options) (*Store, error) {
	o, err := opts.complete(path)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, notOpened(ctx, path)
	}
	d, err := openDatabase(path, &o)
	if err != nil {
		return nil, err
	}
	s := &Store{engine: sqlstore.New[*sql.Tx](d), db: d}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	prepared := make(chan error, 1)
	go func() { prepared <- s.prepare(ctx, o.NoMigrate) }() // SQLite does not look at ctx while it opens a connection
	select {
	case err = <-prepared:
		if err == nil {
			return s, nil
		}
		_ = s.Close() //nolint:errcheck // the earlier error is returned
		if ctx.Err() != nil {
			err = notOpened(ctx, path)
		}
		return nil, err
	case <-ctx.Done():
		go func() {
			<-prepared    //nolint:errcheck // the caller has gone
			_ = s.Close() //nolint:errcheck // the caller has gone
		}()
		return nil, notOpened(ctx, path)
	}
}

func notOpened(ctx context.Context, path string) error {
	return fmt.Errorf("%w: open %s: %w", driver.ErrStore, path, context.Cause(ctx))
}

// prepare makes sure that the file can be used, and creates the tables.
func (s *Store) prepare(ctx context.Context, noMigrate bool) error {
	if err := s.db.check(ctx); err != nil || noMigrate {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	return s.db.takesWrites(ctx)
}

// Validate returns the error with which [Open] would refuse path or the options. It does not read the disk.
func (o *Options) Validate(path string) error {
	_, err := o.complete(path)
	return err
}

// complete returns the options with their defaults in place, and checked.
func (o *Options) complete(path string) (set Options, err error) {
	if o != nil {
		set = *o
	}
	if set.TablePrefix == "" {
		set.TablePrefix = defaultPrefix
	}
	if err := sqlstore.ValidateName("table prefix", set.TablePrefix); err != nil {
		return set, err
	}
	switch {
	case path == "" || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:") || strings.ContainsRune(path, 0):
		return set, fmt.Errorf("%w: the path %q is not a file name (for a store in memory use store/memstore)", driver.ErrInvalidArgument, path)
	case strings.HasPrefix(set.TablePrefix, "sqlite_"):
		return set, fmt.Errorf("%w: the table prefix %q begins with sqlite_, which SQLite reserves", driver.ErrInvalidArgument, set.TablePrefix)
	case set.BusyTimeout < 0 || set.Readers < 0 || set.GroupLimit < 0:
		return set, fmt.Errorf("%w: an option is negative (BusyTimeout %v, Readers %d, GroupLimit %d)",
			driver.ErrInvalidArgument, set.BusyTimeout, set.Readers, set.GroupLimit)
	}
	set.BusyTimeout = cmp.Or(set.BusyTimeout, defaultBusyTimeout)
	set.Readers = cmp.Or(set.Readers, max(defaultReaders, runtime.GOMAXPROCS(0)))
	set.GroupLimit = cmp.Or(set.GroupLimit, defaultGroupLimit)
	if set.clock == nil {
		set.clock = time.Now
	}
	return set, nil
}

// DB returns the store's database, for the application's own tables: DoTx takes its transactions, and Transact passes
// one to its work. A transaction begins IMMEDIATE, unless it is read-only, and takes turns with the store's own
// writes. Do not close the database; close the store.
func (s *Store) DB() *sql.DB { return s.db.db }

// Close finishes pending writes and closes the database. Later calls fail. A write that a transaction of the
// application blocks for longer than Options.BusyTimeout is not made: Close returns an error, and so do the calls
// that made these writes. End your transactions first.
func (s *Store) Close() error { return s.db.close() }

// database is the driver: one file, one writer, some readers.
type database struct {
	path     string
	file     os.FileInfo // what it was when it was opened
	prefix   string
	dialect  *sqldb.Dialect
	text     *sqlstore.Statements
	keep     map[*sqldb.Statement]bool
	slow     map[*sqldb.Statement]bool // reads that may take their time
	db       *sql.DB
	turn     *turnstile
	group    *grouper
	readers  *readers
	locks    keyLocks
	once     sync.Once
	closeErr error

	mu   sync.Mutex
	open map[int64]*openTx
}

func openDatabase(path string, o *Options) (*database, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: the path %q: %w", driver.ErrInvalidArgument, path, err)
	}
	// A commit after a page was split looks through the whole cache for pages to drop: one four times as large costs more
	// there than it spares reads of the index.
	pragmas := url.Values{
		"_pragma": {
			"busy_timeout(" + strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10) + ")",
			"journal_mode(WAL)", "wal_autocheckpoint(4000)", "cache_size(-4096)", "synchronous(FULL)", "foreign_keys(ON)",
		},
	}
	name := "file:" + (&url.URL{Path: full}).EscapedPath() + "?"
	writing, err := sqlite.NewConnector(name + pragmas.Encode())
	if err != nil {
		return nil, fmt.Errorf("%w: the path %q: %w", driver.ErrInvalidArgument, path, err)
	}
	pragmas["_pragma"] = append(pragmas["_pragma"], "query_only(ON)")
	reading, err := sqlite.NewConnector(name + pragmas.Encode())
	if err != nil {
		return nil, fmt.Errorf("%w: the path %q: %w", driver.ErrInvalidArgument, path, err)
	}
	d := &database{path: full, prefix: o.TablePrefix, turn: newTurnstile(o.BusyTimeout), open: make(map[int64]*openTx)}
	d.dialect = &sqldb.Dialect{
		Name:        "SQLite",
		Placeholder: func(n int, _ sqldb.ArgKind) string { return "?" + strconv.Itoa(n) },
		Clock:       o.clock,
		AnyType:     true,
		Table:       func(name string) string { return d.prefix + name },
		Index:       func(name string) string { return d.prefix + name },
		Serial:      "INTEGER PRIMARY KEY AUTOINCREMENT",
		Int:         "INTEGER",
		Text:        "TEXT",
		Bytes:       "BLOB",
	}
	d.text = sqlstore.NewStatements(sqlstore.Dialect{
		Record: d.prefix + "record", Step: d.prefix + "step", Meta: d.prefix + "meta",
		Dialect:   d.dialect,
		Greatest:  "max",
		RowID:     "rowid",
		RowIDType: "INTEGER",
	})
	d.text.Read.Text = nameless(d.text.Read.Text)
	d.keep = map[*sqldb.Statement]bool{beginImmediate: true, commit: true, rollback: true}
	for _, st := range d.text.All() {
		d.keep[st] = true
	}
	d.slow = map[*sqldb.Statement]bool{d.text.List: true, d.text.ListOpen: true, d.text.ListKey: true, d.text.ListName: true, d.text.Health: true}
	d.db = sql.OpenDB(connector{writing, d})
	d.db.SetMaxIdleConns(4)
	raw := func(c sqldriver.Connector) func() (*rawConn, error) {
		return func() (*rawConn, error) {
			if err := d.checkFile(); err != nil {
				return nil, err
			}
			conn, err := c.Connect(context.Background())
			if err != nil {
				return nil, err
			}
			return newRawConn(conn, d.keep), nil
		}
	}
	reads := map[*sqldb.Statement]bool{d.text.Read: true, d.text.Probe: true, d.text.ReadSteps: true, d.text.Meta.Get: true}
	d.group = newGrouper(d.turn, o.GroupLimit, reads, raw(writing), d.checkFile)
	d.readers = newReaders(o.Readers, raw(reading))
	return d, nil
}

// check opens the file, and makes sure of what durability rests on.
func (d *database) check(ctx context.Context) error {
	if info, err := os.Stat(d.path); err == nil && info.IsDir() {
		return fmt.Errorf("%w: %s is a directory", driver.ErrInvalidArgument, d.path)
	}
	makePrivate(d.path)
	var mode string
	if err := d.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return fmt.Errorf("%w: open %s: %s%w", driver.ErrStore, d.path, d.hint(err), err)
	}
	if mode != "wal" {
		return fmt.Errorf("%w: open %s: this file system does not support a write-ahead log (journal mode %q)", driver.ErrStore, d.path, mode)
	}
	file, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("%w: open %s: %w", driver.ErrStore, d.path, err)
	}
	d.file = file
	return nil
}

// takesWrites returns an error if the file may only be read, as is often so for a file that another user copied: its
// tables exist, so that nothing else would notice before the first claim.
func (d *database) takesWrites(ctx context.Context) error {
	_, err := d.db.ExecContext(ctx, "DELETE FROM "+d.prefix+"meta WHERE 0") //nolint:gosec // the prefix was validated
	if classify(err).Class == sqldb.ClassReadOnly {
		return fmt.Errorf("%w: open %s: %s%w", driver.ErrStore, d.path, d.hint(err), err)
	}
	return nil // any other error, such as a busy writer, is left to the first write
}

// hint returns what SQLite's error does not say. It opens the file only if SQLite does not take it for a database, and
// so holds no locks on it: closing the file would take away the locks of this process's connections.
func (d *database) hint(err error) string {
	switch {
	case classify(err).Class == sqldb.ClassReadOnly:
		return "the file or its folder takes no writes: "
	case isNotDatabase(err) && otherFormat(d.path):
		return "the file is in a format that SQLite cannot read, such as the format of Turso's MVCC mode (in Turso, PRAGMA journal_mode = 'wal' changes it back): "
	}
	folder := filepath.Dir(d.path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "there is no folder " + folder + ": "
	}
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		return "no file can be made in its folder: "
	}
	return ""
}

// otherFormat reports whether a file is in a later version of SQLite's file format than SQLite reads.
func otherFormat(path string) bool {
	const magic, readVersion, newest = "SQLite format 3\x00", 19, 2
	file, err := os.Open(path) //nolint:gosec // the caller's own
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // nothing was written
	head := make([]byte, readVersion+1)
	_, err = file.ReadAt(head, 0)
	return err == nil && string(head[:len(magic)]) == magic && head[readVersion] > newest
}

func (d *database) close() error {
	d.once.Do(func() {
		d.closeErr = errors.Join(d.group.close(), d.readers.close(), d.db.Close())
	})
	return d.closeErr
}

// Traits tells the engine of SQLite: see sqlstore.Driver.
func (d *database) Traits() sqlstore.Traits {
	return sqlstore.Traits{
		ReadFirst: true, OneWriter: true,
		WriterBusy:  d.inTransaction,
		MigrateHint: "open the store without Options.NoMigrate, or run the text of Store.Schema",
		Notes:       d.notes,
	}
}

// Dialect returns how SQLite's texts differ: see sqldb.Dialect.
func (d *database) Dialect() *sqldb.Dialect { return d.dialect }

func (d *database) Statements() *sqlstore.Statements { return d.text }

func (d *database) Migrations() [][]string { return migrations(d.prefix) }

func (d *database) Classify(err error) sqldb.ErrorInfo { return classify(err) }

func (d *database) Read(ctx context.Context, calls ...*sqldb.Call) error {
	return d.readers.do(ctx, d.slow[calls[0].Statement], calls)
}

func (d *database) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return d.group.do(ctx, op)
}

// Exclusive is Write: a write transaction has the only writer.
func (d *database) Exclusive(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return d.group.do(ctx, op)
}

// notes returns what an operator should know about this file's durability.
func (d *database) notes(ctx context.Context) ([]string, error) {
	var level int
	if err := d.db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return nil, err
	}
	if level < 2 {
		return []string{"synchronous is below FULL: a loss of power can undo what was acknowledged"}, nil
	}
	return []string{"write-ahead log, synchronous=FULL: what is acknowledged survives a loss of power if the disk keeps what it has synced; the clock is this machine's"}, nil
}

func (d *database) opened(tx *openTx) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[tx.serial] = tx
}

func (d *database) ended(tx *openTx) {
	d.mu.Lock()
	delete(d.open, tx.serial)
	d.mu.Unlock()
	d.locks.releaseAll(tx)
}

// inTransaction reports whether a transaction of this process holds the writer.
func (d *database) inTransaction() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open) > 0
}

func (d *database) transaction(serial int64) *openTx {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[serial]
}
