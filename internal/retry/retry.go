// Package retry computes and makes the pauses between the tries of a store call.
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

// Within returns the pause before the try after the nth, with jitter: least, doubled up to most, and a random part of
// that, at least half.
func Within(least, most time.Duration, n int) time.Duration {
	d := most
	if n = max(n-1, 0); n < 62 && least < most>>n {
		d = least << n
	}
	return d/2 + rand.N(d/2+1)
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
