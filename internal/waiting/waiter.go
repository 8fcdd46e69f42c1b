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
	Resent  bool                // a claim of the call was sent more than once, and may arrive late
	Watcher driver.ChangeWaiter // nil if the store has no such power
	Timeout time.Duration       // of a watch
	// Fingerprint and Take are copied from the call's claims.
	Fingerprint driver.Fingerprint
	Take        driver.TakeOver

	started  time.Time
	crowd    *crowd
	joined   int             // how many times the crowd had asked when this call joined it
	ask      int             // which of the crowd's asks is this call's; 0 without a turn
	late     chan struct{}   // receives when a late claim of this call holds the record; nil unless one was sent again
	watching bool            // this call watches for the store's notification
	ended    <-chan struct{} // the notification; nil if none is promised
}

// Wait waits after a claim that found a running attempt. It returns true if this call must claim again, and false
// if claim now has the answer: the attempt is still running and the time is up, or another caller's claim has
// answered this one too.
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
			w.notified()
		case <-w.crowd.over:
			return !w.useAnswer(claim), nil
		case <-w.late:
			w.take()
			return true, nil
		case <-timer.C: // ask once more
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

// join adds this call to the crowd, or ends its turn there: claim found a running attempt.
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
		late := make(chan struct{}, 1) // a local variable, so that w does not escape to the heap
		w.crowd.expect(w.Nonce, late)
		w.late = late
	}
	w.crowd.stillRunning(claim)
}

// take begins this call's turn: its next claim is made for all.
func (w *Waiter) take() {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.crowd.asks++
	w.ask = w.crowd.asks
}

// Share ends the turn with the result of its claim, and passes it to the others if it may answer them too. If the
// claim got the record, this call stops waiting, and the others wait for it.
func (w *Waiter) Share(claim *driver.ClaimResult) {
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

// useAnswer reports whether the result of another call's claim answers this call too, and if so copies it into
// claim. It does if that claim began after this call joined, so that its result is not older; and if this call's
// own claim would have had the same result.
func (w *Waiter) useAnswer(claim *driver.ClaimResult) bool {
	c := w.crowd
	w.Leave()
	if c.answeredBy <= w.joined {
		return false
	}
	own := driver.ClaimRequest{Nonce: w.Nonce, Fingerprint: w.Fingerprint, Take: w.Take} // a late claim of this call may hold the record
	switch d := driver.Decide(&c.answer.Record, own, c.answer.Now); d {
	case driver.DecideReplay, driver.DecideExpired, driver.DecideAbandoned, driver.DecideMismatch:
		*claim = *c.answer
		claim.Decision = d
		return true
	}
	return false
}

// Failed ends a turn whose claim failed. While a store is unreachable the next turn comes after the pause, so that
// few of the waiting calls fail during a short outage.
func (w *Waiter) Failed(ctx context.Context) {
	if w.crowd == nil || ctx.Err() != nil {
		return
	}
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.unwatch()
	w.ask = 0
}

// Leave removes this call from the crowd. If it had the turn without bringing an answer, or watched the store,
// another call must ask.
func (w *Waiter) Leave() {
	if w.crowd == nil {
		return
	}
	h := w.Hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case w.watching: // there may be no more notification
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

// watch asks the store for a notification, unless another caller has done so. If the store promises one, the pauses
// become long.
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
		if ctx.Err() == nil && w.left() > 0 { // otherwise only this call's own context ended it
			w.crowd.unwatchedUntil = time.Now().Add(watchAgain)
		}
		return
	}
	w.ended, w.crowd.stop, w.crowd.promised = res.Ended, res.Stop, true
	w.crowd.pause = pollMost
	w.crowd.rest()
}

// watches reports whether this call must start a watch. Just after a notification the answer is nearly always
// there, and asking without a watch finds it sooner; if another attempt has begun instead, the next turn starts a
// watch.
func (w *Waiter) watches() bool {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	if w.crowd.fresh {
		w.crowd.fresh = false
		return false
	}
	if w.crowd.watched || time.Now().Before(w.crowd.unwatchedUntil) {
		return false
	}
	w.crowd.watched, w.watching = true, true
	return true
}

// notified gives the crowd a turn.
func (w *Waiter) notified() {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	w.unwatch()
	w.crowd.notified()
}

// unwatch ends this call's watch, so that the next turn may start another. It ends it in a goroutine, because by
// now this call may hold the record and a lease. The caller must hold w.Hub.mu.
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
	w.watching, w.crowd.watched, w.crowd.promised = false, false, false
}
