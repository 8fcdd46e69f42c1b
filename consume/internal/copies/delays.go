package copies

import (
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
)

// Delays returns the possible delays of a retry, sorted: the given ones, or 1 s, 5 s, 30 s, 2 min and 10 min. The
// error wraps [everonce.ErrInvalidArgument] and names the option, of.
func Delays(given []time.Duration, of string) ([]time.Duration, error) {
	if len(given) == 0 {
		return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}, nil
	}
	delays := slices.Clone(given)
	slices.Sort(delays)
	delays = slices.Compact(delays)
	if delays[0] < time.Millisecond || delays[len(delays)-1] > 24*time.Hour {
		return nil, fmt.Errorf("%w: %s must each be from 1ms to 24h", everonce.ErrInvalidArgument, of)
	}
	return delays, nil
}

// DelayFor returns the shortest delay that is at least after, or the longest.
func DelayFor(delays []time.Duration, after time.Duration) time.Duration {
	for _, d := range delays {
		if d >= after {
			return d
		}
	}
	return delays[len(delays)-1]
}

// DelayName formats a delay in its largest unit: 2m, not 2m0s.
func DelayName(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
