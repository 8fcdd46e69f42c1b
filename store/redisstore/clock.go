package redisstore

import (
	"sync/atomic"
	"time"
)

// clock estimates the server's time between two of its answers. Nothing is decided by it but whether a result is far
// from its end, so that a plain GET may answer for the server, and it is told as the time of that answer.
type clock struct{ latest atomic.Pointer[tick] }

// tick is a time of the server's, which it has read between the sending of a call and the coming of its answer.
type tick struct {
	server         int64
	sent, answered time.Time
}

// tickEvery is how old a tick may be when another takes its place.
const tickEvery = time.Second

// saw notes a time that the server has just told, in answer to a call that was sent at a time of this process'.
func (c *clock) saw(us int64, sent time.Time) {
	if t := c.latest.Load(); t == nil || sent.Sub(t.sent) > tickEvery {
		c.latest.Store(&tick{server: us, sent: sent, answered: time.Now()})
	}
}

// tickFor is how long a tick stands for the server's clock: two clocks that drift apart are hardly a millisecond off by then.
const tickFor = time.Minute

// stale reports whether there is no tick, or an old one.
func (c *clock) stale() bool {
	t := c.latest.Load()
	return t == nil || time.Since(t.answered) > tickFor
}

// passed returns a time that the server's clock has passed, as far as the two run alike; zero where nothing is known.
func (c *clock) passed() int64 {
	t := c.latest.Load()
	if t == nil {
		return 0
	}
	return t.server + time.Since(t.answered).Microseconds()
}

// atMost returns a time that the server's clock has not passed, as far as the two run alike.
func (c *clock) atMost() int64 {
	t := c.latest.Load()
	return t.server + time.Since(t.sent).Microseconds()
}
