package proxy

import (
	"context"
	"sync"

	"github.com/everonce/everonce"
)

// tally counts what begins and ends.
type tally struct {
	mu   sync.Mutex
	now  tallied
	none chan struct{} // closed while nothing runs
}

// tallied is what a tally has counted.
type tallied struct {
	running int
	begun   int // since the tally began
}

func newTally() *tally {
	t := &tally{none: make(chan struct{})}
	close(t.none)
	return t
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.begun++
	if t.now.running++; t.now.running == 1 {
		t.none = make(chan struct{})
	}
}

func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.running--; t.now.running == 0 {
		close(t.none)
	}
}

func (t *tally) state() tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// wait returns when nothing runs, or with the context's error: where nothing runs, nil, though the context has ended
// too.
func (t *tally) wait(ctx context.Context) error {
	t.mu.Lock()
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
		if t.state().running > 0 {
			return ctx.Err()
		}
	}
	return nil
}

// Start implements everonce.Observer: it is called before a claim.
func (t *tally) Start(ctx context.Context, _ everonce.Op) context.Context {
	t.begin()
	return ctx
}

// End implements everonce.Observer: it is called when an operation is recorded.
func (t *tally) End(context.Context, everonce.Observation) { t.end() }
