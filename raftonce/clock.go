package raftonce

import (
	"sync"
	"time"
)

// clock is the cluster's time, as its leader stamps it. A leader continues from the highest stamp in the log, at the
// rate of its monotonic clock. So the clocks of the nodes need not agree, setting a clock ends no session, and time
// stands still while there is no leader: clients could not have renewed then. A node stamps before it knows whether it
// leads, so the term of a stamp goes with it (see table.read).
type clock struct {
	mu    sync.Mutex
	term  uint64
	base  int64
	since time.Time // local time at which the time was base
	last  int64     // the last result of seen
}

// stamp returns the current time, for a leader in term. seen returns the highest stamp that its state machine has
// applied. It goes back only after raft.Restore has restored an older state, whose time then continues: otherwise its
// sessions would end.
func (c *clock) stamp(term uint64, seen func() int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := seen() // under the lock, so that calls see it in order
	at := c.base + int64(time.Since(c.since))
	if term != c.term || c.since.IsZero() || at < now || now < c.last {
		c.term, c.base, c.since = term, now, time.Now()
		at = now
	}
	c.last = now
	return at
}
