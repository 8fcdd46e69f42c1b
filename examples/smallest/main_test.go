package main

import (
	"testing"

	"github.com/everonce/everonce/examples/internal/program"
)

const want = `
charging, downstream key 88735ad5f01c89da485a02799b174a25
executed receipt-1
replayed receipt-1
replayed receipt-1
`

const wantAgain = `
replayed receipt-1
replayed receipt-1
replayed receipt-1
`

// TestRunTwice runs the program in a folder, and again in the same: the second process executes nothing.
func TestRunTwice(t *testing.T) {
	file, dir := program.Build(t, "."), t.TempDir()
	for i, want := range []string{want, wantAgain} {
		if got := "\n" + program.Run(t.Context(), t, dir, file); got != want {
			t.Errorf("run %d printed%s\nwant%s", i+1, got, want)
		}
	}
}
