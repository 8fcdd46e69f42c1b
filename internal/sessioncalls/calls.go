// Package sessioncalls is the client's half of a session, over any transport: numbers, the mark under pipelining, the
// renewals, and the end.
package sessioncalls

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce/session"
)

// Calls are the calls of one session. It is safe for concurrent use.
type Calls struct {
	window uint64

	mu    sync.Mutex
	last  uint64        // the highest number given
	open  []uint64      // the numbers of the calls in progress, ascending
	known uint64        // the highest number that was certainly executed
	given []uint64      // the numbers given up, above the mark
	gone  error         // why the session has ended, or nil
	moved chan struct{} // closed and replaced when a call or the session ends
	over  chan struct{} // closed when the session ends
	fence chan struct{} // has a token when the mark has passed a number that was given up
}

// New returns the calls of a session that keeps the results of window numbers above its mark. 0 is no limit here: the
// host refuses a number that is too high.
func New(window uint64) *Calls {
	return &Calls{window: window, moved: make(chan struct{}), over: make(chan struct{}), fence: make(chan struct{}, 1)}
}

// Begin returns a new number, as soon as the window has room for it. The error is why the session has ended, or the
// cause of ctx.
func (c *Calls) Begin(ctx context.Context) (uint64, error) {
	for {
		number, moved, err := c.begin()
		if err != nil || number > 0 {
			return number, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (c *Calls) begin() (number uint64, moved <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone != nil:
		return 0, nil, c.gone
	case c.window > 0 && len(c.open) > 0 && c.last+1-(c.open[0]-1) > c.window:
		return 0, c.moved, nil
	}
	c.last++
	c.open = append(c.open, c.last)
	return c.last, nil, nil
}

// End ends the call of a number: it has its reply, or was given up. The number is not sent any more, so the mark may
// pass it; the host then refuses copies that are still on their way. executed says that the host has certainly executed
// it.
func (c *Calls) End(number uint64, executed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, found := slices.BinarySearch(c.open, number); found {
		c.open = slices.Delete(c.open, at, at+1)
	}
	if executed {
		c.known = max(c.known, number)
	}
	before := len(c.given)
	c.given = slices.DeleteFunc(c.given, func(n uint64) bool { return n <= c.mark() })
	if len(c.given) < before {
		select {
		case c.fence <- struct{}{}:
		default: // it has a token
		}
	}
	c.notify()
}

// GiveUp is End for a number that may still be on its way to the host. When the mark passes it, which is at once if no
// earlier call is in progress, Renew sends the mark.
func (c *Calls) GiveUp(number uint64) {
	c.mu.Lock()
	c.given = append(c.given, number)
	c.mu.Unlock()
	c.End(number, false)
}

// notify wakes the calls that wait for room. The caller holds c.mu.
func (c *Calls) notify() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Mark returns the number up to which no call is in progress.
func (c *Calls) Mark() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark()
}

func (c *Calls) mark() uint64 {
	if len(c.open) > 0 {
		return c.open[0] - 1
	}
	return c.last
}

// BeatMark returns the mark for a renewal. The host would refuse a mark further than the window above its highest
// executed number.
func (c *Calls) BeatMark() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.mark(), c.known+c.window)
}

// Lose records that the session has ended, and reports whether that is new.
func (c *Calls) Lose(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		return false
	}
	c.gone = why
	c.notify()
	close(c.over)
	return true
}

// Gone returns why the session has ended, or nil.
func (c *Calls) Gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Note ends the session if the refusal says so.
func (c *Calls) Note(refusal session.Refusal) {
	switch refusal {
	case session.ErrSessionExpired, session.ErrSessionUnknown, session.ErrFenced:
		c.Lose(refusal)
	}
}

// Renew calls beat with the mark at every third of the lease, and for GiveUp, until ctx or the session ends.
func (c *Calls) Renew(ctx context.Context, lease time.Duration, beat func(ctx context.Context, mark uint64)) {
	ticker := time.NewTicker(max(lease/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.over:
			return
		case <-ticker.C:
		case <-c.fence:
		}
		beat(ctx, c.BeatMark())
	}
}
