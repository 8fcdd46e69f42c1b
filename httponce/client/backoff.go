package client

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// backoff is exponential with full jitter, so that clients that failed together do not come back together.
type backoff struct {
	first, most time.Duration // above zero; first is at most most, and that a day
}

// pause returns the pause after the n-th attempt, n from 1: random, up to first × 2ⁿ⁻¹ and up to most. After a
// Retry-After it is that, and up to first more.
func (b backoff) pause(n int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 {
		return retryAfter + min(jitter(b.first), math.MaxInt64-retryAfter)
	}
	ceiling := b.most
	if shift := n - 1; b.first <= b.most>>shift {
		ceiling = b.first << shift
	}
	return jitter(ceiling)
}

func jitter(d time.Duration) time.Duration {
	return rand.N(d + 1) //nolint:gosec // jitter
}

// retryAfterOf reads Retry-After: whole seconds, or an HTTP date (RFC 9110, section 10.2.3). A date is
// compared with the answer's own Date if it has one, so that the two clocks need not agree. Without a
// valid one in the future the result is zero.
func retryAfterOf(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		s, err := strconv.ParseInt(v, 10, 64)
		if err != nil || s > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64 // longer than any limit
		}
		return time.Duration(s) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return max(0, at.Sub(now))
}
