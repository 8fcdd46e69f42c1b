package mysqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/mysqlstore"
)

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mysqlVariable names a server of MySQL 8, on which the conformance suite then runs too.
const mysqlVariable = "EVERONCE_TEST_MYSQL_URL"

// mysqlURL returns where MySQL is, and leaves a test out, by name, where there is none.
func mysqlURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv(mysqlVariable)
	if url == "" {
		t.Skipf("%s was not run: set %s to the URL of a MySQL 8 server", t.Name(), mysqlVariable)
	}
	return url
}

// openDB opens a handle on the server of a URL, with few connections, which a test ends with.
func openDB(t testing.TB, url string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	config, err := mysqlstore.ParseURL(url)
	noErr(t, err)
	if change != nil {
		change(config)
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

// newStore makes a store with tables in a database of its own.
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

// mariaDB is a handle on the server of all tests.
func mariaDB(t testing.TB) *sql.DB {
	t.Helper()
	return openDB(t, testserver.URL(t, "mariadb"), nil)
}
