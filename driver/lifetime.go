package driver

import (
	"fmt"
	"time"
)

// Lifetime is how long a finished operation is remembered. After both times the key is new.
type Lifetime struct {
	// Retention is how long the result is kept and replayed.
	Retention time.Duration
	// Remember is how long after that a tombstone still says "done".
	Remember time.Duration
}

// Total returns Retention + Remember: how long a key is protected after the last write.
func (l Lifetime) Total() time.Duration { return l.Retention + l.Remember }

// Validate returns an error that wraps [ErrInvalidArgument] if l is not valid.
func (l Lifetime) Validate() error {
	if l.Retention > maxLifetime || l.Remember > maxLifetime {
		return fmt.Errorf("%w: Lifetime: Retention and Remember are at most %d days each (%v, %v)", ErrInvalidArgument, maxLifetimeDays, l.Retention, l.Remember)
	}
	if l.Retention <= 0 || l.Remember < 0 {
		return fmt.Errorf("%w: Lifetime: needs a positive Retention and a non-negative Remember (%v, %v)",
			ErrInvalidArgument, l.Retention, l.Remember)
	}
	return nil
}

// The bound keeps sums of times within what every store can hold.
const (
	maxLifetimeDays = 100 * 365
	maxLifetime     = maxLifetimeDays * 24 * time.Hour
)
