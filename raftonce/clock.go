package raftonce

import (
	"sync"
	"time"
)

// clock is the cluster's time, as its leader tells it. A leader goes on from the highest stamp in the log, as fast as its
// own monotonic clock. So the clocks of the nodes need not agree, a clock that is set ends no session, and the time stands
// still while there is no leader: its clients could not have renewed. A node stamps before it knows whether it leads, so the
// term of a stamp goes with it (see table.read).
type clock struct {
	mu    sync.Mutex
	term  uint64
	base  int64
	since time.Time // when it was base
}

// stamp returns the time of now, for a leader in term whose state machine has seen a stamp.
func (c *clock) stamp(term uint64, seen int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.base + int64(time.Since(c.since))
	if term != c.term || c.since.IsZero() || at < seen {
		c.term, c.base, c.since = term, seen, time.Now()
		return seen
	}
	return at
}
