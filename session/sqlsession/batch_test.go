package sqlsession

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
)

// TestNobodyWaitsInLineForEver: behind a work that does not return, or that sent it, a request is run alone in the end.
// Here that is refused at once.
func TestNobodyWaitsInLineForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store[int]{queue: queue[int]{most: 2}} // all transactions are taken
		_, err := s.batched(t.Context(), &session.Command{Op: session.Request}, func(context.Context, int, []byte) ([]byte, error) { return nil, nil })
		if !errors.Is(err, everonce.ErrInvalidArgument) || len(s.queue.waiting) != 0 {
			t.Errorf("%v, and %d wait", err, len(s.queue.waiting))
		}
	})
}
