package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
monday: 2 booked, 0 skipped; total 300
monday, again: 0 booked, 2 skipped; total 300
tuesday, with a line of monday in it: 1 booked, 1 skipped; total 600
wednesday, with a changed line: refused, a line has changed; total 600
wednesday, corrected: 1 booked, 1 skipped; total 1000
`

// TestRun imports, and compares what was booked.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
