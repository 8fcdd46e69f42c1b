package everonce

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/placed"
)

// Attempt is one execution of an operation, from its claim to its completion or release. [Do] passes it to the work;
// elsewhere [AttemptFrom] finds it. Until the work returns, its methods are safe for concurrent use.
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

// newAttempt makes the attempt that a claim began. ctx is the caller's: its end reaches the work and nothing else.
// Its heartbeat is not started.
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
		op.foundRecord(rec.Previous.Owner, time.Time{}, claim.Now)
	}
	return a
}

// Number returns the number of this attempt, from 1.
func (a *Attempt) Number() int { return a.number }

// Token returns the attempt's fencing token.
func (a *Attempt) Token() driver.Token { return a.token }

// Key returns the operation's key.
func (a *Attempt) Key() Key { return a.key }

// Previous returns what the claim found of an earlier attempt.
func (a *Attempt) Previous() driver.Previous {
	if a.before == nil {
		return driver.Previous{}
	}
	return a.before.previous
}

// DownstreamKey returns a key for a call to another system: 32 hexadecimal digits, equal in every attempt of the
// operation, and different for every name and operation. Give each effect its own name.
func (a *Attempt) DownstreamKey(name string) string {
	return downstreamKey(a.set.IdentitySecret, a.id, name)
}

// Lost reports whether the attempt is known to have lost its lease.
func (a *Attempt) Lost() bool { // not by the context's cause, which may be the caller's: another attempt's loss, where that is in its work
	b := &a.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// Steps returns the operation's known steps, of earlier attempts and of this one.
func (a *Attempt) Steps() []StepRecord { return a.seenSteps().known() }

// Detached returns the work's context without the caller's cancellation, for what must be finished even if the
// caller has gone. It ends when the lease is lost or the attempt is over; inside a transaction, never.
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

// end stops everything that the attempt has running. Its end is already in the record.
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

// workContext is the context of an attempt: it has a place, and ends with its parent or by end. It creates its
// cancellable part at the first look, so work that never checks for cancellation does not pay for it. In a
// transaction only its values are used: the work has a context of the standard library there.
type workContext struct {
	place  place
	parent context.Context
	made   atomic.Pointer[cancellable]
}

// cancellable is a context of the standard library: only such a context has a cause, and children that follow it
// without a goroutine.
type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newCancellable(parent context.Context) *cancellable {
	ctx, cancel := context.WithCancelCause(parent)
	return &cancellable{ctx, cancel}
}

// endedUnseen is the cancellable part of every attempt that ended before its context was looked at.
var endedUnseen = func() *cancellable {
	c := newCancellable(context.Background())
	c.cancel(ErrAttemptEnded)
	return c
}()

// life returns the cancellable part, creating it if needed.
func (c *workContext) life() *cancellable {
	if made := c.made.Load(); made != nil {
		return made
	}
	if mine := newCancellable(c.parent); !c.made.CompareAndSwap(nil, mine) {
		mine.cancel(nil)
	}
	return c.made.Load()
}

// end ends the context, if it has not ended before.
func (c *workContext) end(cause error) {
	if cause == ErrAttemptEnded && c.parent.Err() == nil && c.made.CompareAndSwap(nil, endedUnseen) { //nolint:errorlint // what endedUnseen ended with
		return
	}
	c.life().cancel(cause)
}

func (c *workContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *workContext) Done() <-chan struct{} { return c.life().Done() }

func (c *workContext) Err() error { return c.life().Err() }

func (c *workContext) Value(key any) any {
	if key == (placeKey{}) {
		return &c.place
	}
	if c.place.tx == nil {
		// The standard library may be looking for its own context in this one, to find the cause and to attach
		// children. Its key is unexported.
		life := c.life()
		if v := life.Value(key); v != nil || life != endedUnseen {
			return v
		}
	}
	return c.parent.Value(key)
}

// place says where in the calls of this package a context stands: inside which attempts and transactions. It makes
// nesting an error instead of a deadlock.
type place struct {
	outer   *place
	attempt *Attempt // whose store and record it is; without a number and a key for InTx and batches
	tx      any      // the transaction, inside one that everonce began, or that is the caller's in DoTx
	step    string   // the step whose function it is

	used map[string]int // names of NextKey; under usedMu
}

// usedMu guards the names of all places: they are few, and seldom used.
var usedMu sync.Mutex

// NextKey returns a downstream key of the operation whose work ctx belongs to, for work with several effects of one
// kind: the first call with a name, in the work or in one of its steps, returns the first such key, and so on. If
// the work, or the step, runs again and calls NextKey in the same order, it gets the same keys. NextKey reports
// false where [AttemptFrom] finds no attempt.
func NextKey(ctx context.Context, name string) (key string, ok bool) {
	p := placeOf(ctx)
	if p == nil || p.attempt.number == 0 {
		return "", false
	}
	usedMu.Lock()
	defer usedMu.Unlock()
	if p.used == nil {
		p.used = make(map[string]int)
	}
	p.used[name]++
	return p.attempt.DownstreamKey(strconv.Quote(name) + "/" + strconv.Quote(p.step) + "#" + strconv.Itoa(p.used[name])), true
}

type placeKey = placed.Key

func placeOf(ctx context.Context) *place {
	p, _ := ctx.Value(placeKey{}).(*place)
	return p
}

// placedContext adds a place to a context without a search through it.
type placedContext struct {
	context.Context
	place *place
}

func (c *placedContext) Value(key any) any {
	if key == (placeKey{}) {
		return c.place
	}
	return c.Context.Value(key)
}

// checkPlace rejects calls that could only deadlock: the operation inside its own work, and any call on a store
// inside a transaction that everonce began on it. own is the transaction that the call itself uses.
func (op *operation) checkPlace(own any) error {
	for p := op.place; p != nil; p = p.outer {
		if p.attempt.store != op.store {
			continue
		}
		if p.attempt.id == op.id {
			return op.fail(Invalid, ErrNested, nil)
		}
		if p.tx != nil && p.tx != own {
			return op.fail(Invalid, ErrInTransaction, nil)
		}
	}
	return nil
}

// inTransactionOn reports whether ctx stands inside a transaction that everonce began on the store.
func inTransactionOn(ctx context.Context, store Store) bool {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.tx != nil && p.attempt.store == store {
			return true
		}
	}
	return false
}

// AttemptFrom returns the attempt whose work ctx belongs to. It reports false inside [TxReceiver.InTx] and
// [TransactBatch], even if they are called from the work of an operation: their transaction may be rerun, or commit
// although the operation fails, so keys of that operation do not identify what is written in it.
func AttemptFrom(ctx context.Context) (*Attempt, bool) {
	if p := placeOf(ctx); p != nil && p.attempt.number > 0 {
		return p.attempt, true
	}
	return nil, false
}
