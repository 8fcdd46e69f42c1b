package storeurl

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/testserver"
)

// A store of MariaDB is made for a service, and opened for tools.
func TestMariaDB(t *testing.T) { testMySQL(t, testserver.URL(t, "mariadb")) }

// TestMySQL is the same on MySQL. Without a server it is skipped, and the run says so.
func TestMySQL(t *testing.T) {
	server := os.Getenv("EVERONCE_TEST_MYSQL_URL")
	if server == "" {
		t.Skip("TestMySQL was not run: set EVERONCE_TEST_MYSQL_URL to the URL of a MySQL server")
	}
	testMySQL(t, server)
}

func testMySQL(t *testing.T, server string) {
	t.Parallel()
	opts := Options{TablePrefix: "u" + strings.ToLower(rand.Text()) + "_"}
	s, err := Open(t.Context(), server, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context(), driver.ListRequest{}); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("before it is made: %v, want ErrSchema", err)
	}
	made, err := create(t.Context(), server, opts)
	if err != nil {
		t.Fatal(err)
	}
	if page, err := s.List(t.Context(), driver.ListRequest{}); err != nil || len(page.Records) != 0 {
		t.Errorf("%d records, %v", len(page.Records), err)
	}
	db := made.(*mySQL).db
	for _, table := range []string{"step", "record", "meta"} {
		if _, err := db.ExecContext(t.Context(), "DROP TABLE `"+opts.TablePrefix+table+"`"); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []Store{s, made} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
