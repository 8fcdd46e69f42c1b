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
	last  int64     // what seen returned
}

// stamp returns the time of now, for a leader in term. seen returns the highest stamp that its state machine has seen. It goes
// back only when raft.Restore has brought an older state back, whose time goes on from there: else its sessions would end.
func (c *clock) stamp(term uint64, seen func() int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := seen() // in here, so that it goes back for no other call
	at := c.base + int64(time.Since(c.since))
	if term != c.term || c.since.IsZero() || at < now || now < c.last {
		c.term, c.base, c.since = term, now, time.Now()
		at = now
	}
	c.last = now
	return at
}
