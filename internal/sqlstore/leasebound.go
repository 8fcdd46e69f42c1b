package sqlstore

import (
	"sync"
	"time"
)

// defaultLease is the assumed lease before the first one was seen: the default of everonce.Options.
const defaultLease = 30 * time.Second

// leastBound is the least time that a transaction has. A lease of less than three times that is too short for a store
// whose every write waits for a disk, and must not shorten the transactions too.
const leastBound = 100 * time.Millisecond

// leaseBound knows the shortest lease in live use. A lease counts for as long as it can be running: from
// when it was seen until it has passed twice, unless it is seen again by then.
type leaseBound struct {
	mu   sync.Mutex
	seen [4]seenLease
}

type seenLease struct {
	lease time.Duration
	until time.Time
}

// see notes a lease. Zero, from a claim in a transaction, is not a lease.
func (b *leaseBound) see(lease time.Duration) {
	if lease <= 0 {
		return
	}
	b.noted(lease, time.Now())
}

func (b *leaseBound) noted(lease time.Duration, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free, longest := -1, 0
	for i, s := range b.seen {
		switch {
		case s.lease == lease:
			b.seen[i].until = now.Add(2 * lease)
			return
		case !now.Before(s.until):
			free = i
		case s.lease > b.seen[longest].lease:
			longest = i
		}
	}
	switch {
	case free >= 0:
		b.seen[free] = seenLease{lease, now.Add(2 * lease)}
	case lease < b.seen[longest].lease: // the short ones matter
		b.seen[longest] = seenLease{lease, now.Add(2 * lease)}
	}
}

// shortest returns the shortest lease in use.
func (b *leaseBound) shortest(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	shortest := time.Duration(0)
	for _, s := range b.seen {
		if now.Before(s.until) && (shortest == 0 || s.lease < shortest) {
			shortest = s.lease
		}
	}
	if shortest == 0 {
		return defaultLease
	}
	return shortest
}

// bound limits a transaction where it shuts out the renewals of all leases: to a third of the shortest, or
// leastBound.
func (b *leaseBound) bound(oneWriter bool, timeout time.Duration) time.Duration {
	if !oneWriter {
		return timeout
	}
	third := max(b.shortest(time.Now())/3, leastBound)
	if timeout <= 0 || third < timeout {
		return third
	}
	return timeout
}
