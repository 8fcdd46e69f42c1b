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
