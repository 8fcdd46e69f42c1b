package patterntest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/mysqlstore"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// handle is one database with an empty schema, reached through one client library.
type handle[Tx any] struct {
	name     string
	store    driver.TxStore[Tx]
	receiver *everonce.TxReceiver[Tx]
	// exec writes in a transaction of the application's. Arguments are $1, $2, in their order.
	exec func(ctx context.Context, tx Tx, text string, args ...any) error
	// db reads and writes around the store.
	db *sql.DB
	// begin begins a transaction without everonce.
	begin func(ctx context.Context) (tx Tx, commit, rollback func() error, err error)
}

// onAll runs a test on each database: through pgx, and through database/sql.
func onAll(t *testing.T, pgxTest func(*testing.T, *handle[pgx.Tx]), sqlTest func(*testing.T, *handle[*sql.Tx])) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); pgxTest(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); sqlTest(t, onPostgres(t)) })
	onMySQLs(t, sqlTest)
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); sqlTest(t, onSQLite(t)) })
}

// mysqlVariable names a server of MySQL, on which the tests then run too.
const mysqlVariable = "EVERONCE_TEST_MYSQL_URL"

var hasMySQL = os.Getenv(mysqlVariable) != ""

// onMySQLs runs a test on MariaDB, and on MySQL where there is one.
func onMySQLs(t *testing.T, test func(*testing.T, *handle[*sql.Tx])) {
	onMySQLServers(t, func(t *testing.T, server string) {
		_, _, h := onDatabase(t, server)
		test(t, h)
	})
}

func onMySQLServers(t *testing.T, test func(t *testing.T, server string)) {
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, testserver.URL(t, "mariadb")) })
	if hasMySQL {
		t.Run("mysql", func(t *testing.T) { t.Parallel(); test(t, mySQL(t)) })
	}
}

// mySQL leaves a test out, by name, where there is no MySQL. It waits for a lock as short as it can, as users are told
// to have it.
func mySQL(t testing.TB) string {
	t.Helper()
	server := os.Getenv(mysqlVariable)
	if server == "" {
		t.Skipf("%s was not run: set %s to the URL of a MySQL server", t.Name(), mysqlVariable)
	}
	return with(server, "innodb_lock_wait_timeout=1")
}

// schema makes an empty schema, and returns the server's URL with it as the search path.
func schema(t testing.TB) (url, name string) {
	t.Helper()
	server := testserver.URL(t, "postgres")
	name = "p_" + strings.ToLower(rand.Text()[:16])
	admin, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer admin.Close(context.Background())
		if _, err := admin.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return with(server, "search_path="+name), name
}

// with is a URL with more parameters.
func with(url, parameters string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameters
	}
	return url + "?" + parameters
}

func onPgx(t testing.TB) *handle[pgx.Tx] {
	t.Helper()
	url, name := schema(t)
	h := pgxHandle(t, url, name)
	h.ready(t)
	return h
}

// pgxHandle is a handle with its own pool on a schema that may be ready.
func pgxHandle(t testing.TB, url, name string) *handle[pgx.Tx] {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: name}) // named, so that locks and announcements are its own
	if err != nil {
		t.Fatal(err)
	}
	h := &handle[pgx.Tx]{name: "pgx", store: store, db: stdlib.OpenDBFromPool(pool)}
	t.Cleanup(func() { h.db.Close() })
	h.exec = func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	}
	h.begin = func(ctx context.Context) (pgx.Tx, func() error, func() error, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		return tx, func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }, nil
	}
	if h.receiver, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

func onPostgres(t testing.TB) *handle[*sql.Tx] {
	t.Helper()
	url, name := schema(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return postgresHandle(t, db, name)
}

func postgresHandle(t testing.TB, db *sql.DB, name string) *handle[*sql.Tx] {
	t.Helper()
	store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: name})
	if err != nil {
		t.Fatal(err)
	}
	h := &handle[*sql.Tx]{name: "postgres", store: store, db: db}
	h.throughSQL()
	h.ready(t)
	return h
}

func onSQLite(t testing.TB) *handle[*sql.Tx] {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "once.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sqliteHandle(t, store)
}

func sqliteHandle(t testing.TB, store *sqlitestore.Store) *handle[*sql.Tx] {
	t.Helper()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &handle[*sql.Tx]{name: "sqlite", store: store, db: store.DB()}
	h.throughSQL()
	h.ready(t)
	return h
}

// database makes an empty database on a server, and returns its URL.
func database(t testing.TB, server string) (address, name string) {
	t.Helper()
	name = "p_" + strings.ToLower(rand.Text()[:16])
	admin, err := openMariaDB(server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer admin.Close()
		if _, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String(), name
}

func openMariaDB(address string) (*sql.DB, error) {
	config, err := mysqlstore.ParseURL(address)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(24)
	db.SetMaxIdleConns(24)
	return db, nil
}

func onMariaDB(t testing.TB) *handle[*sql.Tx] {
	t.Helper()
	_, _, h := onDatabase(t, testserver.URL(t, "mariadb"))
	return h
}

func onMySQL(t testing.TB) *handle[*sql.Tx] {
	t.Helper()
	_, _, h := onDatabase(t, mySQL(t))
	return h
}

// onDatabase is a handle on a new database of a server, whose name for tests is MariaDB's, whichever it is.
func onDatabase(t testing.TB, server string) (address, name string, h *handle[*sql.Tx]) {
	t.Helper()
	address, name = database(t, server)
	h = mariaDBHandle(t, address, name)
	h.ready(t)
	return address, name, h
}

// mariaDBHandle is a handle with its own connections on a database that may be ready.
func mariaDBHandle(t testing.TB, address, name string) *handle[*sql.Tx] {
	t.Helper()
	db, err := openMariaDB(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := mysqlstore.New(db, &mysqlstore.Options{Database: name}) // named, so that locks are its own
	if err != nil {
		t.Fatal(err)
	}
	h := &handle[*sql.Tx]{name: "mariadb", store: store, db: db}
	h.throughSQL()
	if h.receiver, err = everonce.NewTxReceiver(h.store, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

var numbered = regexp.MustCompile(`\$\d+`)

// text is a statement as the database wants its arguments.
func (h *handle[Tx]) text(text string) string {
	if h.name == "mariadb" {
		return strings.ReplaceAll(numbered.ReplaceAllString(text, "?"), " rank", " `rank`") // a reserved word of MySQL
	}
	return text
}

func (h *handle[Tx]) throughSQL() {
	s, ok := any(h).(*handle[*sql.Tx])
	if !ok {
		panic("not through database/sql")
	}
	s.exec = func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
		_, err := tx.ExecContext(ctx, s.text(text), args...)
		return err
	}
	s.begin = func(ctx context.Context) (*sql.Tx, func() error, func() error, error) {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		return tx, tx.Commit, tx.Rollback, nil
	}
}

// ready migrates the store, makes a table of effects, and a receiver.
func (h *handle[Tx]) ready(t testing.TB) {
	t.Helper()
	if m, ok := h.store.(interface{ Migrate(context.Context) error }); ok {
		if err := m.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.must(t, "CREATE TABLE effects (name TEXT NOT NULL)")
	var err error
	if h.receiver, err = everonce.NewTxReceiver(h.store, nil); err != nil {
		t.Fatal(err)
	}
}

func (h *handle[Tx]) must(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := h.db.ExecContext(context.Background(), h.text(text), args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// number returns the number that a query returns.
func (h *handle[Tx]) number(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := h.db.QueryRowContext(context.Background(), h.text(query), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// inTx runs work in a transaction of everonce's, without a key.
func (h *handle[Tx]) inTx(t testing.TB, work func(ctx context.Context, tx Tx) error) {
	t.Helper()
	if err := h.receiver.InTx(t.Context(), work); err != nil {
		t.Fatal(err)
	}
}

// openSQLite opens a file that another process may have made.
func openSQLite(t testing.TB, file string) *handle[*sql.Tx] {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	h := &handle[*sql.Tx]{name: "sqlite", store: store, db: store.DB()}
	h.throughSQL()
	return h.opened(t)
}

// openPgx opens a schema that another process may have filled.
func openPgx(t testing.TB, url, schema string) *handle[pgx.Tx] {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &handle[pgx.Tx]{name: "pgx", store: store, db: stdlib.OpenDBFromPool(pool)}
	t.Cleanup(func() { h.db.Close() })
	h.exec = func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	}
	return h.opened(t)
}

func (h *handle[Tx]) opened(t testing.TB) *handle[Tx] {
	t.Helper()
	h.must(t, "CREATE TABLE IF NOT EXISTS effects (name TEXT NOT NULL)")
	var err error
	if h.receiver, err = everonce.NewTxReceiver(h.store, nil); err != nil {
		t.Fatal(err)
	}
	return h
}
