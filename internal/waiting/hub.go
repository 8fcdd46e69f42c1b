// Package waiting makes the callers that wait for the same record in one process ask the store by turns.
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

// crowd is the callers that wait for the same record. They ask the store by turns, one for all, so that what waiting costs the store does
// not grow with their number. There is a turn whenever the pause is over, at once when an attempt of this receiver has ended, when the store
// sends word (see wordCame), and when somebody goes who had it and got no answer. The pauses go on whatever becomes of a turn: a call that
// hangs holds up nobody else. All of it is under the hub's lock, but for the channels.
type crowd struct {
	turn    chan struct{}                    // holds a turn that nobody has taken yet
	over    chan struct{}                    // closed when there is an answer
	answer  *driver.ClaimResult              // what a claim has met that concerns all; not written after over
	read    int                              // which ask that was; not written after over
	resent  map[driver.Nonce]chan<- struct{} // of those whose claim was sent again: tells that one of theirs holds the record
	waiters int
	asks    int           // how often was asked
	watched bool          // one of them sees to the store's word
	word    bool          // and the store has promised it
	stop    func()        // ends the watch; of the crowd, since what a waiter hands on takes its operation to the heap
	told    bool          // word came, and nobody has asked since
	deaf    time.Time     // until when it is not asked for again, since it could not be had
	heard   time.Time     // when word came
	hush    time.Duration // before word that comes again soon is followed
	gone    bool          // who comes now begins another crowd
	pause   time.Duration
	due     time.Time // when the pause is over
	timer   *time.Timer
}

// Bounds of the pauses, and how long those who wait do without word that could not be had.
const (
	pollFirst  = 20 * time.Millisecond
	pollMost   = time.Second
	watchAgain = 10 * time.Second
)

// join makes a caller one of the record's crowd. The hub is locked. Who makes a new crowd asks at once, since an end between its claim and now
// has woken nobody. One that is there is woken by such an end, or has not asked for the first time yet.
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
	if !c.word { // as soon as it is found by one who waits alone: an attempt may have ended elsewhere just after the caller's claim
		c.hurry()
	}
	c.waiters++
	h.waiting.Add(1)
	return c
}

// leave takes a caller out of its crowd. The hub is locked.
func (h *Hub) leave(id driver.RecordID, c *crowd) {
	h.waiting.Add(-1)
	if c.waiters--; c.waiters == 0 {
		h.dissolve(id, c)
	}
}

// dissolve ends a crowd. The hub is locked.
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

// answer tells all who wait what an ask has met.
func (h *Hub) answer(id driver.RecordID, c *crowd, ask int, claim *driver.ClaimResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.gone {
		return
	}
	met := *claim
	c.read, c.answer = ask, &met
	close(c.over)
	h.dissolve(id, c)
}

// wake has one of them ask at once, and others soon, should its call hang.
func (c *crowd) wake() {
	c.give()
	c.hurry()
}

// wordCame has one of them ask at once; or after a pause, which grows, where word has come within a second before. It may be that of a store which
// cannot see that somebody runs.
func (c *crowd) wordCame() {
	now := time.Now()
	if now.Sub(c.heard) > pollMost {
		c.hush = pollFirst
		c.told = true
		c.wake()
	} else {
		c.within(retry.Jitter(c.hush))
		c.hush = min(2*c.hush, pollMost)
	}
	c.heard = now
}

// met hears of a claim by which an attempt runs on: when its lease ends, if that is known, and whether its claim is one that came late, of somebody
// who waits and cannot know.
func (c *crowd) met(claim *driver.ClaimResult) {
	if lease := claim.Record.LeaseUntil.Sub(claim.Now); lease > 0 {
		c.within(lease + time.Millisecond)
	}
	if told := c.resent[claim.Record.Nonce]; told != nil {
		select {
		case told <- struct{}{}:
		default:
		}
	}
}

// expect has the caller told if a claim with its nonce comes late and gets the record.
func (c *crowd) expect(n driver.Nonce, told chan<- struct{}) {
	if c.resent == nil {
		c.resent = make(map[driver.Nonce]chan<- struct{})
	}
	c.resent[n] = told
}

func (c *crowd) give() {
	select {
	case c.turn <- struct{}{}:
	default: // whoever takes the one that is there will ask later than now
	}
}

// hurry begins with short pauses again.
func (c *crowd) hurry() {
	c.pause = 2 * pollFirst
	c.within(retry.Jitter(pollFirst))
}

// rest begins a pause. They grow.
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
