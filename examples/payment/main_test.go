package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
"order-1" good      1200 → 200 {"number":"receipt-1"}
"order-1" good      1200 → 200 {"number":"receipt-1"}
"order-1" good      9900 → 422 the key was used with another charge
"order-2" empty     1200 → 402 card_declined: the card is empty
"order-2" empty     1200 → 402 card_declined: the card is empty
"order-3" busy      1200 → 503 not done, try again
"order-4" timeout   1200 → 500 it is not yet known whether the charge was made; we look into it
"order-4" timeout   1200 → 500 it is not yet known whether the charge was made; we look into it
""       good      1200 → 400 the Idempotency-Key is missing or wrong
calls of the gateway: 4
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
