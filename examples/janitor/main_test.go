package main

import (
	"strings"
	"testing"
)

const want = `
day 0: executed receipt-1
day 0: replayed receipt-1
day 7: the janitor removed 1 results, 0 records
day 7: expired (paid, receipt-1)
day 37: the janitor removed 0 results, 1 records
day 37: executed receipt-1
`

// TestRun lets time pass, and compares what is replayed, remembered and forgotten.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
