package consume

import (
	"context"
	"sync"
	"time"
)

// gate is shut for a while when a store cannot be written to, so that nothing is begun that could not be ended, or,
// for one message, when its broker does not take an answer. The pause doubles while that lasts.
type gate struct {
	bounds Backoff

	mu    sync.Mutex
	until time.Time
	pause time.Duration
}

func newGate(bounds Backoff) *gate { return &gate{bounds: bounds} }

// shut shuts the gate, and returns for how long. Several that find the same failure shut it once.
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

// opened ends the doubling: something was written.
func (g *gate) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pause = 0
}

// pass waits until the gate is open; false where ctx ends before.
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
