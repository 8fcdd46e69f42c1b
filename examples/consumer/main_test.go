package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
deposit-1: acknowledge, which is lost
deposit-2: acknowledge, which is lost
deposit-2: acknowledge
deposit-3: dead letter
deposit-1: dead letter
deposit-1: acknowledge
deposit-2: acknowledge
booked 2, skipped 3, balance 350
`

// TestRun works through the queue, and compares what was booked.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
