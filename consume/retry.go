package consume

import (
	"cmp"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// Backoff bounds the pauses between tries. The first pause is about Min. It doubles with each failure, up to Max. The
// zero value of a field is the default that the option of this type names. A Max below Min counts as Min.
type Backoff struct{ Min, Max time.Duration }

// WithDefaults returns b with least and most in place of zeros. It is for adapters.
func (b Backoff) WithDefaults(least, most time.Duration) Backoff {
	b.Min = cmp.Or(b.Min, least)
	b.Max = max(cmp.Or(b.Max, most), b.Min)
	return b
}

// RetryPolicy says when a failed message is retried. The zero value of each field is its default.
type RetryPolicy struct {
	// Limit is the number of retries before a message becomes a dead letter. Default 10; negative means none.
	Limit int
	// Min is the longest delay of the first retry. It doubles with each retry. Each delay is random, between half of that
	// and all of it. Default 1 s.
	Min time.Duration
	// Max bounds the delay. Default 10 minutes.
	Max time.Duration
}

// WithDefaults returns b with its defaults in place of zeros; limit is the default of Limit. It is for adapters.
func (b RetryPolicy) WithDefaults(limit int) RetryPolicy {
	if b.Limit == 0 {
		b.Limit = limit
	}
	if b.Min == 0 {
		b.Min = time.Second
	}
	if b.Max == 0 {
		b.Max = 10 * time.Minute
	}
	return b
}

// after returns the delay after so many retries: a random part of it, at least half, so that messages that failed
// together do not come back together.
func (b RetryPolicy) after(retries int) time.Duration {
	return retry.Within(b.Min, b.Max, retries+1)
}
