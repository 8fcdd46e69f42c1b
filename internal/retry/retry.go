// Package retry has the pauses between the tries of a store call.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff returns the pause before the try after the nth, with jitter: about 10 ms, doubled up to 1 s.
func Backoff(n int) time.Duration {
	return Jitter(min(10*time.Millisecond<<min(n-1, 7), time.Second))
}

// Jitter returns between half of d and one and a half, so that callers that wait together do not come back together.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// Pause waits for d, or returns the context's cause.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
