package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
order-1: unknown
order-2: unknown
order-1: unknown
settled: 1
order-1: replayed receipt-1
order-2: unknown
settled: 1
order-1: replayed receipt-1
order-2: executed receipt-2
`

// TestRun settles what is unknown, and compares what duplicates get afterwards.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
