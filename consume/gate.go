package consume

import (
	"context"
	"sync"
	"time"
)

// gate is shut for a while after a write to the store failed, so that no work starts that could not be recorded; or,
// for one message, after its broker did not accept an answer. The pause doubles with each failure.
type gate struct {
	bounds Backoff

	mu    sync.Mutex
	until time.Time
	pause time.Duration
}

func newGate(bounds Backoff) *gate { return &gate{bounds: bounds} }

// shut shuts the gate and returns for how long. Concurrent failures shut it once.
func (g *gate) shut() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if left := g.until.Sub(now); left > 0 {
		return left
	}
	g.pause = min(max(2*g.pause, g.bounds.Min), g.bounds.Max)
	g.until = now.Add(g.pause)
	return g.pause
}

// opened resets the pause after a successful write.
func (g *gate) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pause = 0
}

// pass waits until the gate is open. It returns false if ctx ends first.
func (g *gate) pass(ctx context.Context) bool {
	for {
		g.mu.Lock()
		left := time.Until(g.until)
		g.mu.Unlock()
		if left <= 0 {
			return ctx.Err() == nil
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}
