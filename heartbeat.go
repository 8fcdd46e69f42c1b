package everonce

import (
	"context"
	"errors"
	"time"
)

// startBeat arms the first renewal, a third of the lease after the claim was sent.
func (a *Attempt) startBeat(started time.Time) {
	a.beat.deadline = started.Add(a.call.lease)
	a.pulse.schedule(a, started.Add(a.call.lease/3))
}

func (a *Attempt) stopBeat() {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	a.pulse.cancel(a)
	if b.expiry != nil {
		b.expiry.Stop()
	}
	if b.cut != nil {
		b.cut(ErrAttemptEnded)
	}
	if a.ev != nil {
		a.ev.RenewFailures = b.failures
	}
}

// extend moves the local deadline after a write that renewed the lease and was sent at that time.
func (a *Attempt) extend(sent time.Time) {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := sent.Add(a.call.lease); !b.lost && d.After(b.deadline) {
		b.deadline = d
	}
}

// renew is one beat.
func (a *Attempt) renew() {
	b := &a.beat
	b.mu.Lock()
	if b.stopped || b.lost {
		b.mu.Unlock()
		return
	}
	left := time.Until(b.deadline)
	if b.expiry == nil {
		b.expiry = time.AfterFunc(left, a.expire)
	}
	b.mu.Unlock()

	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(&a.ctx), min(max(left/2, minLease), a.set.StoreTimeout)) // a try that hangs leaves room for another
	_, err := a.store.Renew(ctx, RenewRequest{ID: a.id, Token: a.token, Nonce: a.nonce, Lease: a.call.lease, Lifetime: a.call.lifetime})
	cancel()

	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped || b.lost:
	case err == nil:
		b.deadline = sent.Add(a.call.lease)
		a.pulse.schedule(a, sent.Add(a.call.lease/3))
	case errors.Is(err, ErrLeaseLost):
		a.lose()
	default: // again soon: the local deadline is what ends it
		b.failures++
		a.pulse.schedule(a, time.Now().Add(a.call.lease/12))
	}
}

// expire runs when the local deadline has passed, answered or not: from then on another may hold the
// record, and the work must stop.
func (a *Attempt) expire() {
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.lost {
		return
	}
	if left := time.Until(b.deadline); left > 0 {
		b.expiry.Reset(left)
		return
	}
	a.lose()
}

// lose tells the work that another may hold the record. The heartbeat is locked.
func (a *Attempt) lose() {
	a.beat.lost = true
	a.cancel(ErrLeaseLost)
	if a.beat.cut != nil {
		a.beat.cut(ErrLeaseLost)
	}
}
