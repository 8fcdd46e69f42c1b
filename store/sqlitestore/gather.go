package sqlitestore

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	gatherStep  = 20 * time.Microsecond  // without a write
	gatherLimit = 500 * time.Microsecond // in all
)

// gather waits until as many writes have come as the last transaction answered: its callers often write again at once,
// and then share a commit. It returns as soon as no more writes come. came is the number of writes.
func gather(came *atomic.Int64, answered int) {
	start := time.Now()
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
