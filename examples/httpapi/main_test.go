package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
alice order-1 {"cents": 1200} → 201 replayed=     receipt r-1 over 1200
alice order-1 {"cents": 1200} → 201 replayed=true receipt r-1 over 1200
alice order-1 {"cents": 9900} → 422 replayed=     problem: Idempotency-Key is already used
bob   order-1 {"cents": 1200} → 201 replayed=     receipt r-2 over 1200
bob   order-2 {"cents": -1} → 400 replayed=     no charge in the body
bob   order-2 {"cents": -1} → 400 replayed=true no charge in the body
bob           {"cents": 1200} → 400 replayed=     problem: Idempotency-Key is missing
charges: 2
`

// TestRun sends the requests, and compares all answers.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
