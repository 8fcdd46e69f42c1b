package main

import (
	"testing"

	"github.com/everonce/everonce/examples/internal/program"
)

const want = `
order 0 is at 0 false
order 1 is at 1 false
order 2 is at 2 false
order 3 is at 3 false
order 4 is at 4 false
order 5 is at 5 false
order 6 is at 6 false
`

const wantAgain = `
order 0 was appended before
order 1 was appended before
order 2 is at 2 true
order 3 is at 3 true
order 4 is at 4 true
order 5 is at 5 true
order 6 is at 6 true
`

// TestRunTwice: what the first run has appended is acknowledged to the second, and not appended again.
func TestRunTwice(t *testing.T) {
	file, dir := program.Build(t, "."), t.TempDir()
	for i, want := range []string{want, wantAgain} {
		if got := "\n" + program.Run(t.Context(), t, dir, file); got != want {
			t.Errorf("run %d printed%s\nwant%s", i+1, got, want)
		}
	}
}
