package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// The server's last reported time is used for a minute.
func TestClockGrowsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		if !c.read().stale || c.read().passed != 0 {
			t.Error("a clock of which nothing is known is not stale")
		}
		for range 2 {
			c.saw(1_000_000, time.Now())
			time.Sleep(tickFor)
			if c.read().stale {
				t.Error("stale after a minute, want a little later")
			}
			if got, want := c.read().passed, int64(61_000_000); got != want {
				t.Errorf("a minute after it was one second the clock has passed %d µs, want %d", got, want)
			}
			time.Sleep(time.Millisecond)
			if !c.read().stale {
				t.Error("not stale after more than a minute")
			}
		}
	})
}
