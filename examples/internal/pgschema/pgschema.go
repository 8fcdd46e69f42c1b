// Package pgschema gives each test a separate schema.
package pgschema

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testserver"
)

// URL returns the URL of the tests' server, with an empty schema for its search_path, which is gone after the test.
func URL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(testserver.URL(t, "postgres"))
	if err != nil {
		t.Fatal("the PostgreSQL URL does not parse")
	}
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	schema := "example_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), `DROP SCHEMA `+schema+` CASCADE`); err != nil {
			t.Error(err)
		}
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := conn.Exec(t.Context(), `CREATE SCHEMA `+schema); err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}
