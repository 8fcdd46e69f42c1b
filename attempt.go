package everonce

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
)

// Attempt is one execution of an operation, from its claim to its completion or release. [Do] passes it to the work;
// in the other modes [AttemptFrom] finds it. Its methods may be called concurrently, until the work has returned.
type Attempt struct {
	operation
	ctx workContext

	token  driver.Token
	nonce  driver.Nonce
	number int
	before *before // nil for a key's first attempt

	beat  heartbeat
	steps atomic.Pointer[steps] // nil until a step is known
}

// before is what the claim found.
type before struct {
	previous  driver.Previous
	lastError string
	created   time.Time
}

// newAttempt makes the attempt that a claim began. ctx is the caller's: its end is told to the work,
// and to nothing else. Its heartbeat is not started.
func newAttempt(ctx context.Context, op *operation, claim *driver.ClaimResult) *Attempt {
	rec := &claim.Record
	a := &Attempt{
		operation: *op,
		token:     rec.Token, nonce: rec.Nonce, number: rec.Attempt,
	}
	if rec.Previous.State != 0 {
		a.before = &before{rec.Previous, rec.LastError, rec.CreatedAt}
	}
	a.ctx.place = place{outer: op.place, attempt: a}
	a.ctx.parent = ctx
	if len(rec.Steps) > 0 {
		a.steps.Store(recall(rec.Steps))
	}
	if op.ev != nil {
		op.ev.Attempt = a.number
	}
	return a
}

// Number returns the number of this attempt: 1 for the first.
func (a *Attempt) Number() int { return a.number }

// Token returns the attempt's fencing token.
func (a *Attempt) Token() driver.Token { return a.token }

// Key returns the operation's key.
func (a *Attempt) Key() Key { return a.key }

// Previous returns what the claim found: the attempt before this one, if there was one.
func (a *Attempt) Previous() driver.Previous {
	if a.before == nil {
		return driver.Previous{}
	}
	return a.before.previous
}

// DownstreamKey returns a key for a call to another system, of 32 hexadecimal digits. It is the same in every attempt
// of the operation, and different for every name and every operation. Give each effect its own name.
func (a *Attempt) DownstreamKey(name string) string {
	return downstreamKey(a.set.IdentitySecret, a.id, name)
}

// Lost reports whether the attempt is known to have lost its lease. Its context is then cancelled with the cause
// [ErrLeaseLost], unless it had ended before.
func (a *Attempt) Lost() bool { // not by the context's cause, which may be the caller's: another attempt's loss, where that is in its work
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// Steps returns what is known of the operation's steps, as earlier attempts left them and as this one has written them.
func (a *Attempt) Steps() []driver.StepRecord { return a.seenSteps().known() }

// Detached returns the work's context without the caller's end: it ends when the lease is lost or the attempt is over.
// Inside a transaction, where there is no lease, it does not end. It is for what must be finished even if nobody waits,
// such as a compensation.
func (a *Attempt) Detached() context.Context {
	if a.ctx.place.tx != nil { // in a transaction there is no lease to lose
		return context.WithoutCancel(&a.ctx)
	}
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detached == nil {
		b.detached = &workContext{place: a.ctx.place, parent: context.WithoutCancel(&a.ctx)}
		switch {
		case b.lost:
			b.detached.end(ErrLeaseLost)
		case b.stopped:
			b.detached.end(ErrAttemptEnded)
		}
	}
	return b.detached
}

// abandoned describes the attempt that was taken over, for a reconciler.
func (a *Attempt) abandoned(step string) Abandoned {
	about := Abandoned{Key: a.key, Step: step, Attempt: a.number - 1, Downstream: a.DownstreamKey}
	if b := a.before; b != nil {
		about.Owner, about.Since, about.LastError = b.previous.Owner, b.created, b.lastError
	}
	return about
}

// tookOver reports whether an attempt before this one ended in the unknown.
func (a *Attempt) tookOver() bool {
	s := a.Previous().State
	return s == driver.StateAbandoned || s == driver.StateClaimed
}

// end stops everything that the attempt has running. The record says by now what became of it.
func (a *Attempt) end() {
	a.stopBeat()
	a.closeSteps()
	a.ctx.end(ErrAttemptEnded)
	a.hub.Wake(a.id)
}

// detached returns a context for the attempt's own writes: it has the values of the caller's and not its end.
func (a *Attempt) detached(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(&a.ctx), limit)
}
