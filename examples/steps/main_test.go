package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
  mail for order-7
unknown, balance 0, because of the step "mail"
unknown, balance 0, because of the step "mail"
settled: the mail was sent
  webhook for order-7, key de99f4ec…
  event for order-7, key 66128ffd…
executed, balance 3800
replayed, balance 3800
orders placed: 1
`

// TestRun delivers the order four times, and compares what reached the world.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
