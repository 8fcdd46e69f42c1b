package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testserver"
)

const want = `
order-1 → 200 replayed=     balance 3800
order-1 → 200 replayed=true balance 3800
order-2 → 402 replayed=     the balance is too low
order-2 → 402 replayed=true the balance is too low
order-3 → 200 replayed=     balance 3000
order-1 → 200 replayed=true balance 3800
order-4 → 404 replayed=     no such account
order-4 → 404 replayed=true no such account
`

// TestRun sends the requests to a real server, and compares all answers: of the booking that was refused
// nothing remains in the balance.
func TestRun(t *testing.T) {
	address := testserver.URL(t, "postgres")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("EVERONCE_TEST_POSTGRES_URL is no URL")
	}
	schema := pgx.Identifier{"httptx_" + strings.ToLower(rand.Text())}.Sanitize()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
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

	var out strings.Builder
	if err := run(t.Context(), &out, u.String()); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
