package redisstore

import (
	"sync/atomic"
	"time"
)

// clock estimates the server's time between two of its answers. Nothing is decided by it but whether a result is far
// from its end, so that a plain GET may answer for the server, and it is told as the time of that answer.
type clock struct{ latest atomic.Pointer[tick] }

// tick is a time of the server's, and when it came in.
type tick struct {
	server int64
	local  time.Time
}

// tickEvery is how old a tick may be when another takes its place.
const tickEvery = time.Second

// saw notes a time that the server has just told.
func (c *clock) saw(us int64) {
	if t := c.latest.Load(); t == nil || time.Since(t.local) > tickEvery {
		c.latest.Store(&tick{server: us, local: time.Now()})
	}
}

// now returns a time that the server's clock has passed, as far as the two run alike; zero where nothing is known.
func (c *clock) now() int64 {
	t := c.latest.Load()
	if t == nil {
		return 0
	}
	return t.server + time.Since(t.local).Microseconds()
}
