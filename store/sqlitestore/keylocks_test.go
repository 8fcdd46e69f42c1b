package sqlitestore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// A transaction that could not begin leaves its key to the next one.
func TestATransactionThatDidNotBeginHoldsNoKey(t *testing.T) {
	s := openTest(t, nil)
	writer, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	req := claimOf("a")
	req.Lease = 0
	if _, _, err := s.Begin(ctx, driver.BeginRequest{Claim: &req}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Begin while another has the writer: %v", err)
	}
	if err := writer.Rollback(); err != nil {
		t.Fatal(err)
	}
	h, res, err := s.Begin(t.Context(), driver.BeginRequest{Claim: &req})
	if err != nil || res.Decision != driver.DecideClaimed {
		t.Fatalf("Begin after it: %v, %v; want claimed", res.Decision, err)
	}
	if err := h.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if res, err := s.Claim(t.Context(), claimOf("a")); err != nil || res.Decision != driver.DecideClaimed {
		t.Errorf("Claim after a rollback: %v, %v; want claimed", res.Decision, err)
	}
}
