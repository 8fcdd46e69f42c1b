package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
)

// clock estimates the server's time between two of its answers. The estimate decides only whether a result is far from
// its end, so that a plain GET may answer for the server, and is reported as the time of that answer.
type clock struct{ latest atomic.Pointer[tick] }

// tick is a time of the server's, which it has read between the sending of a call and the coming of its answer.
type tick struct {
	server         int64
	sent, answered time.Time
}

// tickEvery is how old a tick may be when another takes its place.
const tickEvery = time.Second

// saw notes the server's time from the answer to a call that was sent at a time of this process.
func (c *clock) saw(us int64, sent time.Time) {
	if t := c.latest.Load(); t == nil || sent.Sub(t.sent) > tickEvery {
		c.latest.Store(&tick{server: us, sent: sent, answered: time.Now()})
	}
}

// tickFor is how long a tick stands for the server's clock: two clocks that drift apart are hardly a millisecond off by
// then.
const tickFor = time.Minute

// reading is the server's time as far as the two clocks run alike; zero where nothing is known.
type reading struct {
	passed int64 // it has passed this
	atMost int64 // and not this
	stale  bool  // what is known is old
}

// farMargin is how far from its end a result must be for no clock to be asked.
const farMargin = time.Second

// far reports whether a result is so far from its end that the server's time need not be asked.
func (r reading) far(rec *driver.Record) bool {
	return !r.stale && rec.ResultUntil.UnixMicro() >= r.atMost+farMargin.Microseconds()
}

// during returns the server's time, as far as it is known, when it had a result.
func (r reading) during(rec *driver.Record) time.Time {
	return at(max(r.passed, rec.UpdatedAt.UnixMicro()))
}

// read estimates the server's time.
func (c *clock) read() reading {
	t := c.latest.Load()
	if t == nil {
		return reading{stale: true}
	}
	since := time.Since(t.answered)
	return reading{
		passed: t.server + since.Microseconds(),
		atMost: t.server + (since + t.answered.Sub(t.sent)).Microseconds(),
		stale:  since > tickFor,
	}
}

// estimate estimates the server's time, and asks for it if the last known time is old, because replays do not return
// it. With an error it returns the old reading.
func (s *Store) estimate(ctx context.Context) (reading, error) {
	if told := s.clock.read(); !told.stale {
		return told, nil
	}
	sent := time.Now()
	now, err := s.now(ctx)
	if err == nil {
		s.clock.saw(now.UnixMicro(), sent)
	}
	return s.clock.read(), err
}
