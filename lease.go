package everonce

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// processStart is the origin of monotonicNow.
var processStart = time.Now()

// monotonicNow is a cheaper [time.Now] for comparing with other such times. It reads one clock instead of two,
// which matters for an operation in memory.
func monotonicNow() time.Time { return processStart.Add(time.Since(processStart)) }

// heartbeat is the renewal of an attempt's lease.
type heartbeat struct {
	mu       sync.Mutex
	stopped  bool
	lost     bool
	ending   bool        // its end is being written, which says whether the lease is lost
	renewal  *time.Timer // calls renew
	expiry   *time.Timer // the local deadline; made at the first beat
	sent     time.Time   // before the claim, or the latest write that renewed it, was sent
	detached *workContext
}

// startBeat arms the first renewal, a third of the lease after the claim was sent.
func (a *Attempt) startBeat(started time.Time) {
	a.beat.mu.Lock()
	defer a.beat.mu.Unlock()
	a.beat.sent = started
	a.beat.renewal = time.AfterFunc(time.Until(started.Add(a.call.lease/3)), a.renew)
}

func (a *Attempt) stopBeat() {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.renewal.Stop()
	if b.expiry != nil {
		b.expiry.Stop()
	}
	if b.detached != nil {
		b.detached.end(ErrAttemptEnded)
	}
}

// beginEnd notes that the write that ends the attempt follows.
func (a *Attempt) beginEnd() {
	a.beat.mu.Lock()
	defer a.beat.mu.Unlock()
	a.beat.ending = true
}

// extend moves the local deadline after a write that renewed the lease and was sent at that time. Answers may
// arrive in another order than the writes.
func (a *Attempt) extend(sent time.Time) {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.lost && sent.After(b.sent) {
		b.sent = sent
	}
}

// renew renews the lease once.
func (a *Attempt) renew() {
	b := &a.beat
	b.mu.Lock()
	if b.stopped || b.lost {
		b.mu.Unlock()
		return
	}
	left := b.left(a.call.lease)
	if b.expiry == nil {
		b.expiry = time.AfterFunc(left, a.expire)
	}
	b.mu.Unlock()

	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(&a.ctx), min(max(left/2, minLease), a.set.StoreTimeout)) // so that a try that hangs leaves time for another
	_, err := a.store.Renew(ctx, driver.RenewRequest{ID: a.id, Token: a.token, Nonce: a.nonce, Lease: a.call.lease, Lifetime: a.call.lifetime})
	cancel()
	if err == nil {
		a.extend(sent)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped || b.lost:
	case err == nil:
		b.renewal.Reset(time.Until(b.sent.Add(a.call.lease / 3)))
	case errors.Is(err, ErrLeaseLost):
		if !b.ending { // otherwise the attempt's own end caused the error
			a.lose()
		}
	default: // try again soon, until the local deadline
		if a.ev != nil {
			a.ev.RenewFailures++
		}
		b.renewal.Reset(a.call.lease / 12)
	}
}

// expire runs when the local deadline has passed, with or without an answer: from then on another attempt may hold
// the record, and the work must stop.
func (a *Attempt) expire() {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.lost {
		return
	}
	if left := b.left(a.call.lease); left > 0 {
		b.expiry.Reset(left)
		return
	}
	a.lose()
}

// lapsed is [Attempt.Lost] at this moment: a process that was stopped may get its timers in any order, and may get
// an answer before the timer of the lease fires.
func (a *Attempt) lapsed() bool {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.lost && b.left(a.call.lease) <= 0 {
		a.lose()
	}
	return b.lost
}

// lose ends the work's context because another attempt may hold the record. The caller must hold b.mu.
func (a *Attempt) lose() {
	a.beat.lost = true
	a.ctx.end(ErrLeaseLost)
	if a.beat.detached != nil {
		a.beat.detached.end(ErrLeaseLost)
	}
}

// left returns how long the lease holds for certain. The caller must hold b.mu.
func (b *heartbeat) left(lease time.Duration) time.Duration { return lease - time.Since(b.sent) }
