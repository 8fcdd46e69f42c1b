package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
order-1, the answer is lost: unknown
order-1, again: executed receipt-1, found by asking
order-1, again: replayed receipt-1
order-2, the request is lost: unknown
order-2, while the gateway is down: unknown
order-2, when it is back: executed receipt-2
charges at the gateway: 2
`

// TestRun loses an answer and a request, and compares what was asked and charged.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
