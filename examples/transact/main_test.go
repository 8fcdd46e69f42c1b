package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
order-1 1200: executed, balance 3800
order-1 1200: replayed, balance 3800
order-2 800: executed, balance 3000
order-1 1200: replayed, balance 3800
order-3 4000: rejected: no_funds
order-3 4000: rejected: no_funds
order-1 1300: mismatch
`

// TestRun books, and compares outcomes and balances.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
