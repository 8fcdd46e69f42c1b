package everonce

import (
	"context"
	"sync/atomic"
	"time"
)

// workContext is the context of an attempt: it stands in a place, and ends with its parent or by end. What it
// takes to end is made when somebody first looks: work that never asks whether it is to stop costs nothing
// for it. In a transaction it is asked for values alone: the work has a context of the standard library there.
type workContext struct {
	place  place
	parent context.Context
	made   atomic.Pointer[cancellable]
}

// cancellable is a context of the standard library: only those have a cause, and children that follow
// them without a goroutine.
type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newCancellable(parent context.Context) *cancellable {
	ctx, cancel := context.WithCancelCause(parent)
	return &cancellable{ctx, cancel}
}

// endedUnseen stands for the context of every attempt that was over before anybody looked.
var endedUnseen = func() *cancellable {
	c := newCancellable(context.Background())
	c.cancel(ErrAttemptEnded)
	return c
}()

// life is the part that can be ended.
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
		// The standard library may be asking for its own context in this one, to find the cause and to let
		// children follow: its key is not ours to know.
		life := c.life()
		if v := life.Value(key); v != nil || life != endedUnseen {
			return v
		}
	}
	return c.parent.Value(key)
}

// place says where in the calls of this package a context stands: inside which attempts and
// transactions. It is what makes nesting an error instead of a deadlock.
type place struct {
	outer   *place
	attempt *Attempt // whose store and record it is; without a key for InTx
	tx      any      // the transaction, inside one that everonce began, or that is the caller's in DoTx
}

type placeKey struct{}

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

// checkPlace refuses what could only wait for itself: the operation inside its own work, and any call on
// a store inside a transaction that everonce began on it. own is the transaction that the call itself uses.
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

// AttemptFrom returns the innermost attempt to whose work ctx belongs.
func AttemptFrom(ctx context.Context) (*Attempt, bool) {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.attempt.number > 0 {
			return p.attempt, true
		}
	}
	return nil, false
}
