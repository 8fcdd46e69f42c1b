package httponce

import (
	"context"
	"sync"
	"time"

	"github.com/everonce/everonce"
)

// workContext is the context of a handler. It is the attempt's context, which does not end with the client, with a
// deadline. Its timer and channel are made on first use: most handlers that finish at once need neither.
type workContext struct {
	attempt  *everonce.Attempt
	parent   context.Context // the attempt's; never asked whether it has ended
	deadline time.Time       // zero without one

	mu     sync.Mutex
	values context.Context // the parent's, without its end; nil until one is asked for
	real   context.Context // nil until it is asked for
	cancel context.CancelFunc
	ended  bool
}

func (c *workContext) begin(parent context.Context, a *everonce.Attempt, limit time.Duration) {
	c.attempt, c.parent = a, parent
	if limit > 0 {
		c.deadline = time.Now().Add(limit)
	}
}

// end ends the handler's context: goroutines it left behind see that.
func (c *workContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *workContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		parent := c.attempt.Detached()
		if c.deadline.IsZero() {
			c.real, c.cancel = context.WithCancel(parent)
		} else {
			c.real, c.cancel = context.WithDeadline(parent, c.deadline)
		}
		if c.ended {
			c.cancel()
		}
	}
	return c.real
}

func (c *workContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *workContext) Done() <-chan struct{} { return c.context().Done() }

func (c *workContext) Err() error { return c.context().Err() }

func (c *workContext) Value(key any) any {
	c.mu.Lock()
	ctx := c.real
	if ctx == nil {
		if c.values == nil {
			c.values = context.WithoutCancel(c.parent)
		}
		ctx = c.values
	}
	c.mu.Unlock()
	return ctx.Value(key)
}
