package demo

import (
	"context"
	"iter"
	"sync"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// gate lets the client begin so many payments and no more, so that every kill finds work to interrupt,
// however few payments there are.
type gate struct {
	mu      sync.Mutex
	allowed int
	opened  chan struct{} // closed and renewed when more is allowed
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// open allows the first n payments.
func (g *gate) open(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > g.allowed {
		g.allowed = n
		close(g.opened)
		g.opened = make(chan struct{})
	}
}

func (g *gate) state() (allowed int, opened <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allowed, g.opened
}

// through yields payments as they are allowed, until ctx ends.
func (g *gate) through(ctx context.Context, payments []payment.Payment) iter.Seq[payment.Payment] {
	return func(yield func(payment.Payment) bool) {
		for i, p := range payments {
			for allowed, opened := g.state(); i >= allowed; allowed, opened = g.state() {
				select {
				case <-opened:
				case <-ctx.Done():
					return
				}
			}
			if !yield(p) {
				return
			}
		}
	}
}
