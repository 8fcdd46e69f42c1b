package sqlstore

import (
	"sync/atomic"
	"time"
)

// defaultLease is what is assumed of leases before one was seen: the default of everonce.Options.
const defaultLease = 30 * time.Second

// leaseBound knows the shortest lease in use, in nanoseconds; 0 before the first.
type leaseBound struct{ shortest atomic.Int64 }

// see notes a lease. Zero, of a claim in a transaction, is none.
func (b *leaseBound) see(lease time.Duration) {
	for lease > 0 {
		old := b.shortest.Load()
		if old != 0 && old <= int64(lease) || b.shortest.CompareAndSwap(old, int64(lease)) {
			return
		}
	}
}

// bound limits a transaction where it shuts out the renewals of all leases: to a third of the shortest.
func (b *leaseBound) bound(oneWriter bool, timeout time.Duration) time.Duration {
	if !oneWriter {
		return timeout
	}
	shortest := time.Duration(b.shortest.Load())
	if shortest == 0 {
		shortest = defaultLease
	}
	if third := shortest / 3; timeout <= 0 || third < timeout {
		return third
	}
	return timeout
}
