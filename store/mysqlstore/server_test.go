package mysqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/mysqlstore"
)

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mysqlVariable names a server of MySQL, on which the tests then run too.
const mysqlVariable = "EVERONCE_TEST_MYSQL_URL"

// server is one that a test runs on.
type server struct {
	url   string
	mysql bool // or else MariaDB
}

func mariaDB(t *testing.T) server {
	t.Helper()
	return server{url: testserver.URL(t, "mariadb")}
}

// mySQL returns the MySQL server, and skips the test if none is configured.
func mySQL(t *testing.T) server {
	t.Helper()
	url := os.Getenv(mysqlVariable)
	if url == "" {
		t.Skipf("%s was not run: set %s to the URL of a MySQL server", t.Name(), mysqlVariable)
	}
	return server{url, true}
}

// onEach runs a test on MariaDB, and on MySQL where there is one.
func onEach(t *testing.T, test func(*testing.T, server)) {
	t.Helper()
	t.Run("mariadb", func(t *testing.T) { test(t, mariaDB(t)) })
	if os.Getenv(mysqlVariable) != "" {
		t.Run("mysql", func(t *testing.T) { test(t, mySQL(t)) })
	}
}

// isolation is the name of that variable.
func (s server) isolation() string {
	if s.mysql {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

// open opens a handle, with few connections, which a test ends with.
func (s server) open(t testing.TB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	config, err := mysqlstore.ParseURL(s.url)
	noErr(t, err)
	if change != nil {
		change(config)
	}
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	if _, given := config.Params["innodb_lock_wait_timeout"]; s.mysql && !given { // it waits for a lock as short as it can
		config.Params["innodb_lock_wait_timeout"] = "1"
	}
	connector, err := mysql.NewConnector(config)
	noErr(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newDatabase makes a database of a test's own, and returns its name.
func newDatabase(t testing.TB, db *sql.DB) string {
	t.Helper()
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	name := "test_" + hex.EncodeToString(random)
	mustExec(t, db, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP DATABASE "+name) //nolint:usetesting // the test's own has ended
		noErr(t, err)
	})
	return name
}

func mustExec(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), text, args...); err != nil { //nolint:usetesting // also after the test's own
		t.Fatalf("%s: %v", text, err)
	}
}

// newStore makes a store with tables in a separate database.
func newStore(t testing.TB, db *sql.DB, opts *mysqlstore.Options) (*mysqlstore.Store, string) {
	t.Helper()
	var given mysqlstore.Options
	if opts != nil {
		given = *opts
	}
	given.Database = newDatabase(t, db)
	store, err := mysqlstore.New(db, &given)
	noErr(t, err)
	noErr(t, store.Migrate(t.Context()))
	return store, given.Database
}
