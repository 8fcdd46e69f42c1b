package everonce

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// hub wakes the callers of this receiver that wait for an attempt of this receiver. It is a short cut, as the
// word of a [ChangeWaiter] is: what decides is always the store, which waiters ask again, woken or not.
type hub struct {
	waiting atomic.Int64
	mu      sync.Mutex
	signals map[RecordID]*signal
}

type signal struct {
	done    chan struct{}
	waiters int
}

// join returns the signal that the end of the key's attempt will close.
func (h *hub) join(id RecordID) *signal {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.signals[id]
	if s == nil {
		if h.signals == nil {
			h.signals = make(map[RecordID]*signal)
		}
		s = &signal{done: make(chan struct{})}
		h.signals[id] = s
	}
	s.waiters++
	h.waiting.Add(1)
	return s
}

func (h *hub) leave(id RecordID, s *signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting.Add(-1)
	if s.waiters--; s.waiters == 0 && h.signals[id] == s {
		delete(h.signals, id)
	}
}

// wake tells the waiters that the key's record has changed, durably.
func (h *hub) wake(id RecordID) {
	if h.waiting.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.signals[id]; s != nil {
		close(s.done)
		delete(h.signals, id)
	}
}

// Bounds of the interval at which a waiter asks the store again, unwoken.
const (
	pollFirst = 20 * time.Millisecond
	pollMost  = time.Second
)

// waiter is one call that waits for a running attempt, within its own limit.
type waiter struct {
	op      *operation
	limit   time.Duration
	started time.Time
	poll    time.Duration
	signal  *signal
	ended   <-chan struct{} // of the store's watch; nil without one
	stop    func()
}

// wait returns when it is worth to claim again: true, or false when the time is up. The first call
// returns at once, having joined the hub and asked the store for word, so that no wake is missed between two claims.
func (w *waiter) wait(ctx context.Context, leaseLeft time.Duration) (bool, error) {
	if w.started.IsZero() {
		w.started = time.Now()
	}
	if w.signal == nil {
		w.join(ctx)
		return true, nil
	}
	left := w.limit - time.Since(w.started)
	if left <= 0 {
		return false, nil
	}
	pause := w.poll/2 + rand.N(w.poll) //nolint:gosec // jitter
	w.poll = min(w.poll*2, pollMost)
	if leaseLeft > 0 {
		pause = min(pause, leaseLeft+time.Millisecond)
	}
	timer := time.NewTimer(min(pause, left))
	defer timer.Stop()
	select {
	case <-w.signal.done:
		w.leave()
		w.join(ctx)
	case <-w.ended:
		w.leave()
		w.join(ctx)
	case <-timer.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return true, nil
}

// join makes this call one that is woken. A store that sends word is seldom asked again besides.
func (w *waiter) join(ctx context.Context) {
	w.signal = w.op.hub.join(w.op.id)
	w.poll = pollFirst
	if w.op.watcher == nil {
		return
	}
	one, cancel := context.WithTimeout(ctx, min(w.op.set.StoreTimeout, w.limit-time.Since(w.started)))
	defer cancel()
	if res, err := w.op.watcher.Watch(one, WatchRequest{ID: w.op.id}); err == nil {
		w.ended, w.stop = res.Ended, res.Stop
		w.poll = pollMost
	}
}

func (w *waiter) leave() {
	if w.signal != nil {
		w.op.hub.leave(w.op.id, w.signal)
		w.signal = nil
	}
	if w.stop != nil {
		w.stop()
		w.ended, w.stop = nil, nil
	}
}

func (w *waiter) waited() time.Duration {
	if w.started.IsZero() {
		return 0
	}
	return time.Since(w.started)
}
