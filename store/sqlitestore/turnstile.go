package sqlitestore

import (
	"context"
	"time"
)

// turnstile lets one writer of this process through at a time, in the order of their coming. SQLite itself
// would let them poll for its lock, without order.
type turnstile struct {
	inside chan struct{}
	limit  time.Duration
}

func newTurnstile(limit time.Duration) *turnstile {
	return &turnstile{inside: make(chan struct{}, 1), limit: limit}
}

// enter waits for the turn, as long as the context and the limit let it.
func (t *turnstile) enter(ctx context.Context) error {
	select {
	case t.inside <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(t.limit)
	defer timer.Stop()
	select {
	case t.inside <- struct{}{}:
		return nil
	case <-timer.C:
		return errWriterBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enterUnless waits for the turn until it is called off, and reports whether it got it.
func (t *turnstile) enterUnless(off <-chan struct{}) bool {
	select {
	case t.inside <- struct{}{}:
		return true
	default:
	}
	select {
	case t.inside <- struct{}{}:
		return true
	case <-off:
		return false
	}
}

func (t *turnstile) leave() { <-t.inside }
