package main

import (
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/pgschema"
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
	var out strings.Builder
	if err := run(t.Context(), &out, pgschema.URL(t)); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
