package sqlitestore

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	gatherStep  = 20 * time.Microsecond
	gatherLimit = 500 * time.Microsecond

	gatherOften = 150 * time.Microsecond // between two writes that are worth a pause
	gatherPause = 250 * time.Microsecond
	gatherMost  = 256 // commits without a pause, after one that was too long or in vain
)

// gathering lets writes come before a transaction begins, so that more of them share its commit. It is used by one
// goroutine at a time.
type gathering struct {
	at   time.Time // of the last transaction
	seen int64     // what had come by then
	skip int       // so many more transactions begin without a pause
	back int       // what skip was the last time
}

// before is called before a transaction of so many as are queued. came counts the writes, and answered is how many the last transaction
// had: their callers may come with their next ones.
//
// Where writes come often it pauses, if the processors have other work: that is done meanwhile, and each commit that is spared spares
// what a processor loses by waiting for the disk. Where they have none, a pause is idle time, which shows in its length: an
// idle process wakes late. Then, and where nobody came, the next transactions have no pause.
func (g *gathering) before(came *atomic.Int64, queued, answered int) {
	start, n := time.Now(), came.Load()
	often := n > g.seen && start.Sub(g.at) <= gatherOften*time.Duration(n-g.seen)
	g.at, g.seen = start, n
	switch {
	case often && g.skip == 0:
		time.Sleep(gatherPause)
		g.judge(time.Since(start), int64(queued)+came.Load()-n > 1) // who comes alone shares nothing
		return
	case often:
		g.skip--
	}
	callers(came, start, answered)
}

// judge counts a pause: one that was too long, or in vain, is followed by more and more transactions without.
func (g *gathering) judge(paused time.Duration, some bool) {
	if paused < 2*gatherPause && some {
		g.back = 0
		return
	}
	g.back = min(max(1, 2*g.back), gatherMost)
	g.skip = g.back
}

// callers waits for the callers that were just answered. It stops as soon as nobody comes.
func callers(came *atomic.Int64, start time.Time, answered int) {
	if answered < 2 {
		return
	}
	seen, last := came.Load(), start
	for full := seen + int64(answered); seen < full; {
		runtime.Gosched()
		now := time.Now()
		if n := came.Load(); n > seen {
			seen, last = n, now
		}
		if now.Sub(last) > gatherStep || now.Sub(start) > gatherLimit {
			return
		}
	}
}
