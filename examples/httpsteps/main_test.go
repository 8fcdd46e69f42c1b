package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
  gateway: charged 1200
alice ride-1: 503 not finished yet
  gateway: this key is known
  mail to alice: receipt-1
the service itself: sent again 1
alice ride-1: 201 /rides/1
alice ride-1: 201 /rides/1
alice ride-2: 402 the card is declined
alice ride-2: 402 the card is declined
  gateway: charged 1300
  mail to alice: receipt-2
alice ride-3: 503 not finished yet
alice ride-3: 409 (a problem)
the service itself: sent again 0
`

// TestEffectsOfAHandler has a gateway and a mail server lose their answers, and compares what was done, and what was told.
func TestEffectsOfAHandler(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
