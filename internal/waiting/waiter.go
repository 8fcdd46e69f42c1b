package waiting

import (
	"context"
	"log/slog"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/panics"
)

// Waiter is one call that waits for a running attempt, within its own limit. Hub, ID, Nonce and Limit are required.
// It is not safe for concurrent use.
type Waiter struct {
	Hub     *Hub
	ID      driver.RecordID
	Nonce   driver.Nonce // of the call's claims
	Limit   time.Duration
	Resent  bool                // a claim of the call was sent more than once, and may come late
	Watcher driver.ChangeWaiter // nil where the store is none
	Timeout time.Duration       // of a watch
	// Fingerprint and Take are those of the call's claims.
	Fingerprint driver.Fingerprint
	Take        driver.TakeOver

	started  time.Time
	crowd    *crowd
	joined   int             // how many times the crowd had asked when this call joined it
	ask      int             // which of the crowd's asks is this call's; 0 without a turn
	late     chan struct{}   // receives when a late claim of this call holds the record; nil unless one was sent again
	watching bool            // this call sees to the store's notification
	ended    <-chan struct{} // the notification; nil if none is promised
}

// Wait follows a claim that met a running attempt. It returns true when this call is to claim again, and false when what claim says
// now is the answer: that the attempt runs on, because the time is up, or what another caller's claim has met.
func (w *Waiter) Wait(ctx context.Context, claim *driver.ClaimResult) (again bool, err error) {
	if w.started.IsZero() {
		w.started = time.Now()
	}
	w.join(claim)
	left := w.left()
	if left <= 0 {
		return false, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		select {
		case <-w.crowd.turn:
			w.take()
			w.watch(ctx)
			return true, nil
		case <-w.ended:
			w.wordCame()
		case <-w.crowd.over:
			return !w.answered(claim), nil
		case <-w.late:
			w.take()
			return true, nil
		case <-timer.C: // the last look
			w.take()
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// Waited returns how long the call has waited.
func (w *Waiter) Waited() time.Duration {
	if w.started.IsZero() {
		return 0
	}
	return time.Since(w.started)
}

func (w *Waiter) left() time.Duration { return w.Limit - time.Since(w.started) }

// join makes this call one of the crowd, or ends its turn there: the attempt that claim met runs on.
func (w *Waiter) join(claim *driver.ClaimResult) {
	h := w.Hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.crowd == nil {
		w.crowd = h.join(w.ID)
		w.joined = w.crowd.asks
	}
	w.ask = 0
	if w.Resent && w.late == nil {
		late := make(chan struct{}, 1) // by this name alone it leaves the call: by w's the operation would leave with it, for the heap
		w.crowd.expect(w.Nonce, late)
		w.late = late
	}
	w.crowd.met(claim)
}

// take begins this call's turn: its next claim is one for all.
func (w *Waiter) take() {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.crowd.asks++
	w.ask = w.crowd.asks
}

// Tell ends a turn by what its claim has met, and tells the others if it concerns them too. Who got the record waits no more, and the others wait
// for it.
func (w *Waiter) Tell(claim *driver.ClaimResult) {
	if w.ask == 0 {
		return
	}
	switch claim.Decision {
	case driver.DecideReplay, driver.DecideExpired, driver.DecideAbandoned:
		w.Hub.answer(w.ID, w.crowd, w.ask, claim)
		w.ask = 0
	case driver.DecideClaimed:
		w.ask = 0
	}
	w.Leave()
}

// answered reports whether what another call's claim has met answers this one too, which is what claim says then. It does if that claim
// was begun after this call had joined, so that it has met nothing that was over before; and if this call's own claim, met by the same
// record at the same time, would have changed nothing.
func (w *Waiter) answered(claim *driver.ClaimResult) bool {
	c := w.crowd
	w.Leave()
	if c.read <= w.joined {
		return false
	}
	own := driver.ClaimRequest{Nonce: w.Nonce, Fingerprint: w.Fingerprint, Take: w.Take} // a claim of its own whose packet came late may have the record
	switch d := driver.Decide(&c.answer.Record, own, c.answer.Now); d {
	case driver.DecideReplay, driver.DecideExpired, driver.DecideAbandoned, driver.DecideMismatch:
		*claim = *c.answer
		claim.Decision = d
		return true
	}
	return false
}

// Failed ends a turn whose claim has failed. While a store is away the next turn comes after the pause, so that few of those who wait are told
// of a short failure.
func (w *Waiter) Failed(ctx context.Context) {
	if w.crowd == nil || ctx.Err() != nil {
		return
	}
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.unwatch()
	w.ask = 0
}

// Leave takes this call out of the crowd. If it had the turn, and so has brought no answer, or saw to the store's word, another has to ask.
func (w *Waiter) Leave() {
	if w.crowd == nil {
		return
	}
	h := w.Hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case w.watching: // there may be no more word
		w.crowd.wake()
	case w.ask != 0:
		w.crowd.give()
	}
	w.unwatch()
	if w.late != nil {
		delete(w.crowd.resent, w.Nonce)
		w.late = nil
	}
	h.leave(w.ID, w.crowd)
	w.crowd, w.ask = nil, 0
}

// watch asks the store for word, unless another caller has done so. Where it is promised the store is seldom asked besides.
func (w *Waiter) watch(ctx context.Context) {
	if w.Watcher == nil || !w.watches() {
		return
	}
	one, cancel := context.WithTimeout(ctx, min(w.Timeout, w.left(), pollMost))
	defer cancel()
	res, err := w.Watcher.Watch(one, driver.WatchRequest{ID: w.ID})
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	if err != nil {
		w.unwatch()
		if ctx.Err() == nil && w.left() > 0 { // or it was cut short for this call alone
			w.crowd.deaf = time.Now().Add(watchAgain)
		}
		return
	}
	w.ended, w.crowd.stop, w.crowd.word = res.Ended, res.Stop, true
	w.crowd.pause = pollMost
	w.crowd.rest()
}

// watches reports whether it is for this call to ask for word. Where word has just come there is nearly always an answer: who asks for that alone
// has it sooner, and if the attempt of another has begun instead, the next turn sees to its word.
func (w *Waiter) watches() bool {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	if w.crowd.told {
		w.crowd.told = false
		return false
	}
	if w.crowd.watched || time.Now().Before(w.crowd.deaf) {
		return false
	}
	w.crowd.watched, w.watching = true, true
	return true
}

// wordCame has the crowd ask.
func (w *Waiter) wordCame() {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.unwatch()
	w.crowd.wordCame()
}

// unwatch leaves the store's word to whoever has the next turn. The watch ends beside this call: by now that may have got the record,
// whose lease runs. The hub is locked.
func (w *Waiter) unwatch() {
	if !w.watching {
		return
	}
	if stop := w.crowd.stop; stop != nil {
		id := w.ID
		go func() {
			defer panics.Log(context.Background(), "store's watch", slog.String("key", id.Short()))
			stop()
		}()
	}
	w.ended, w.crowd.stop = nil, nil
	w.watching, w.crowd.watched, w.crowd.word = false, false, false
}
