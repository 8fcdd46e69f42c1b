package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

const want = `
order-1: executed
order-1: replayed
order-2: rejected
order-3: executed
2 orders, published 3 times: 2 invoices of 2000 cents
`

// TestRun places orders, and compares what became of them.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "shop.db"), ""); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}

// TestToStdout: without a consumer that knows an event again there are three lines of two events.
func TestToStdout(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "shop.db"), "stdout"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"type":"order.placed"`); n != 3 || strings.Contains(out.String(), `"key":"order-2"`) {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}

// TestDestinations: what a URL leads to is made without a word to it.
func TestDestinations(t *testing.T) {
	t.Setenv("WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	for _, to := range []string{"amqp://broker.example/", "https://example.com/hooks"} {
		p, closing, err := destination(nil, to, nil)
		if err != nil || p == nil {
			t.Fatal(err)
		}
		if err := closing(); err != nil {
			t.Error(err)
		}
	}
	for _, to := range []string{"amqp", "https:"} {
		if _, _, err := destination(nil, to, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", to, err)
		}
	}
}
