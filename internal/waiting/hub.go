// Package waiting lets the callers in one process that wait for the same record take turns in asking the store.
package waiting

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// Hub tracks the waiters of one receiver by record ID. The zero value is ready.
type Hub struct {
	waiting atomic.Int64
	mu      sync.Mutex
	crowds  map[driver.RecordID]*crowd
}

// crowd is the callers that wait for the same record. They take turns in asking the store, each turn for all of
// them, so that the cost to the store does not grow with their number. A turn is given whenever the pause is over,
// and at once when an attempt of this receiver has ended, when the store sends a notification (see notified), and
// when a caller leaves that had the turn and got no answer. The pauses continue whatever happens to a turn: a call
// that hangs delays only itself. All fields except the channels are guarded by the hub's lock.
type crowd struct {
	turn           chan struct{}                    // holds a turn that no caller has taken yet
	over           chan struct{}                    // closed when answer is set
	answer         *driver.ClaimResult              // a claim's result that may answer all; not written after over
	answeredBy     int                              // which ask had that result; not written after over
	resent         map[driver.Nonce]chan<- struct{} // by callers whose claim was sent again: receives when that claim holds the record
	waiters        int
	asks           int           // how often the store was asked
	watched        bool          // a caller watches, or is about to
	promised       bool          // the store has promised a notification
	stop           func()        // ends the watch; in the crowd, because in a waiter it would move the operation to the heap
	fresh          bool          // a notification came, and the store has not been asked since
	unwatchedUntil time.Time     // no watch before that, because one failed
	notifiedAt     time.Time     // when a notification came
	notifyPause    time.Duration // pause before acting on a notification that follows soon
	gone           bool          // later callers begin another crowd
	pause          time.Duration
	due            time.Time // when the pause is over
	timer          *time.Timer
}

// Bounds of the pauses, and how long there is no watch after one failed.
const (
	pollFirst  = 20 * time.Millisecond
	pollMost   = time.Second
	watchAgain = 10 * time.Second
)

// join adds a caller to the record's crowd. The caller must hold h.mu. The first caller of a new crowd asks at
// once, since the attempt may have ended between its claim and now without waking anyone. In an existing crowd such
// an end gives a turn, or the first turn has not been taken yet.
func (h *Hub) join(id driver.RecordID) *crowd {
	c := h.crowds[id]
	if c == nil {
		c = &crowd{turn: make(chan struct{}, 1), over: make(chan struct{})}
		c.timer = time.AfterFunc(pollMost, func() { h.pauseOver(c) })
		c.due = time.Now().Add(pollMost)
		c.give()
		if h.crowds == nil {
			h.crowds = make(map[driver.RecordID]*crowd)
		}
		h.crowds[id] = c
	}
	if !c.promised { // ask as soon as a lone waiter would: the attempt may have ended elsewhere just after the caller's claim
		c.hurry()
	}
	c.waiters++
	h.waiting.Add(1)
	return c
}

// leave takes a caller out of its crowd. The caller must hold h.mu.
func (h *Hub) leave(id driver.RecordID, c *crowd) {
	h.waiting.Add(-1)
	if c.waiters--; c.waiters == 0 {
		h.dissolve(id, c)
	}
}

// dissolve ends a crowd. The caller must hold h.mu.
func (h *Hub) dissolve(id driver.RecordID, c *crowd) {
	if c.gone {
		return
	}
	c.gone = true
	delete(h.crowds, id)
	c.timer.Stop()
}

// Wake makes the waiters of a record ask the store again: the record has changed, durably.
func (h *Hub) Wake(id driver.RecordID) {
	if h.waiting.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.crowds[id]; c != nil {
		c.wake()
	}
}

// Held returns how many callers wait, and for how many records.
func (h *Hub) Held() (callers, keys int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int(h.waiting.Load()), len(h.crowds)
}

// pauseOver gives a turn, and begins the next pause.
func (h *Hub) pauseOver(c *crowd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.give()
	c.rest()
}

// answer ends the wait of all callers with the result of one claim.
func (h *Hub) answer(id driver.RecordID, c *crowd, ask int, claim *driver.ClaimResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.gone {
		return
	}
	answer := *claim
	c.answeredBy, c.answer = ask, &answer
	close(c.over)
	h.dissolve(id, c)
}

// wake gives a turn at once, and others soon, in case that call hangs.
func (c *crowd) wake() {
	c.give()
	c.hurry()
}

// notified gives a turn at once. If the last notification came less than a second ago, it gives a turn after a
// pause, which grows: the store may be sending notifications although an attempt is still running.
func (c *crowd) notified() {
	now := time.Now()
	if now.Sub(c.notifiedAt) > pollMost {
		c.notifyPause = pollFirst
		c.fresh = true
		c.wake()
	} else {
		c.within(retry.Jitter(c.notifyPause))
		c.notifyPause = min(2*c.notifyPause, pollMost)
	}
	c.notifiedAt = now
}

// stillRunning takes the result of a claim that found a running attempt. It gives a turn when that attempt's lease
// ends, if that is known. If the attempt belongs to a late claim of a waiting caller, it informs that caller.
func (c *crowd) stillRunning(claim *driver.ClaimResult) {
	if lease := claim.Record.LeaseUntil.Sub(claim.Now); lease > 0 {
		c.within(lease + time.Millisecond)
	}
	if late := c.resent[claim.Record.Nonce]; late != nil {
		select {
		case late <- struct{}{}:
		default:
		}
	}
}

// expect registers the channel that receives if a late claim with the nonce gets the record.
func (c *crowd) expect(n driver.Nonce, late chan<- struct{}) {
	if c.resent == nil {
		c.resent = make(map[driver.Nonce]chan<- struct{})
	}
	c.resent[n] = late
}

func (c *crowd) give() {
	select {
	case c.turn <- struct{}{}:
	default: // a turn is waiting: its ask will start later than now
	}
}

// hurry resets the pauses to short ones.
func (c *crowd) hurry() {
	c.pause = 2 * pollFirst
	c.within(retry.Jitter(pollFirst))
}

// rest begins a pause, longer than the one before.
func (c *crowd) rest() {
	c.arm(retry.Jitter(c.pause))
	c.pause = min(2*c.pause, pollMost)
}

// within ends the pause in d, if it would not end sooner.
func (c *crowd) within(d time.Duration) {
	if time.Until(c.due) > d {
		c.arm(d)
	}
}

func (c *crowd) arm(d time.Duration) {
	if c.gone {
		return
	}
	c.due = time.Now().Add(d)
	c.timer.Reset(d)
}
