package everonce

import (
	"context"
	"log/slog"
	"time"

	"github.com/everonce/everonce/driver"
)

// waiter is one call that waits for a running attempt, within its own limit.
type waiter struct {
	op       *operation
	nonce    driver.Nonce // of its claims
	limit    time.Duration
	started  time.Time
	crowd    *crowd
	joined   int             // how many times the crowd had asked when this call joined it
	ask      int             // which of the crowd's asks is this call's; 0 without a turn
	late     chan struct{}   // told when a claim of this call that came late holds the record; nil unless one was sent again
	watching bool            // this call sees to the store's word
	ended    <-chan struct{} // the word; nil if none is promised
}

// wait follows a claim that met a running attempt. It returns true when this call is to claim again, and false when what claim says
// now is the answer: that the attempt runs on, because the time is up, or what another caller's claim has met.
func (w *waiter) wait(ctx context.Context, claim *driver.ClaimResult) (again bool, err error) {
	if w.started.IsZero() {
		w.started = time.Now()
	}
	if w.op.ev != nil {
		defer func() { w.op.ev.Waited = time.Since(w.started) }()
	}
	w.op.waits = true
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

func (w *waiter) left() time.Duration { return w.limit - time.Since(w.started) }

// join makes this call one of the crowd, or ends its turn there: the attempt that claim met runs on.
func (w *waiter) join(claim *driver.ClaimResult) {
	h := &w.op.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.crowd == nil {
		w.crowd = h.join(w.op.id)
		w.joined = w.crowd.asks
	}
	w.ask = 0
	if w.op.resent && w.late == nil {
		late := make(chan struct{}, 1) // by this name alone it leaves the call: by w's the operation would leave with it, for the heap
		w.crowd.expect(w.nonce, late)
		w.late = late
	}
	w.crowd.met(claim)
}

// take begins this call's turn: its next claim is one for all.
func (w *waiter) take() {
	w.op.hub.mu.Lock()
	defer w.op.hub.mu.Unlock()
	w.crowd.asks++
	w.ask = w.crowd.asks
}

// tell ends a turn by what its claim has met, and tells the others if it concerns them too. Who got the record waits no more, and the others wait
// for it.
func (w *waiter) tell(claim *driver.ClaimResult) {
	w.op.waits = false
	if w.ask == 0 {
		return
	}
	switch claim.Decision {
	case driver.DecideReplay, driver.DecideExpired, driver.DecideAbandoned:
		w.op.hub.answer(w.op.id, w.crowd, w.ask, claim)
		w.ask = 0
	case driver.DecideClaimed:
		w.ask = 0
	}
	w.leave()
}

// answered reports whether what another call's claim has met answers this one too, which is what claim says then. It does if that claim
// was begun after this call had joined, so that it has met nothing that was over before; and if this call's own claim, met by the same
// record at the same time, would have changed nothing.
func (w *waiter) answered(claim *driver.ClaimResult) bool {
	c := w.crowd
	w.leave()
	if c.read <= w.joined {
		return false
	}
	own := driver.ClaimRequest{Nonce: w.nonce, Fingerprint: w.op.fingerprint} // a claim of its own whose packet came late may have the record
	if w.op.takesOver() {
		own.Take = driver.TakeAbandoned
	}
	switch d := driver.Decide(&c.answer.Record, own, c.answer.Now); d {
	case driver.DecideReplay, driver.DecideExpired, driver.DecideAbandoned, driver.DecideMismatch:
		*claim = *c.answer
		claim.Decision = d
		return true
	}
	return false
}

// failed ends a turn whose claim has failed. While a store is away the next turn comes after the pause, so that few of those who wait are told
// of a short failure.
func (w *waiter) failed(ctx context.Context, err error) {
	if w.crowd == nil || ctx.Err() != nil || isFinal(err) {
		return
	}
	w.op.hub.mu.Lock()
	defer w.op.hub.mu.Unlock()
	w.unwatch()
	w.ask = 0
}

// leave takes this call out of the crowd. If it had the turn, and so has brought no answer, or saw to the store's word, another has to ask.
func (w *waiter) leave() {
	if w.crowd == nil {
		return
	}
	h := &w.op.hub
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
		delete(w.crowd.resent, w.nonce)
		w.late = nil
	}
	h.leave(w.op.id, w.crowd)
	w.crowd, w.ask = nil, 0
}

// watch asks the store for word, unless another caller has done so. Where it is promised the store is seldom asked besides.
func (w *waiter) watch(ctx context.Context) {
	if w.op.watcher == nil || !w.watches() {
		return
	}
	one, cancel := context.WithTimeout(ctx, min(w.op.set.StoreTimeout, w.left(), pollMost))
	defer cancel()
	res, err := w.op.watcher.Watch(one, driver.WatchRequest{ID: w.op.id})
	w.op.hub.mu.Lock()
	defer w.op.hub.mu.Unlock()
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
func (w *waiter) watches() bool {
	w.op.hub.mu.Lock()
	defer w.op.hub.mu.Unlock()
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
func (w *waiter) wordCame() {
	w.op.hub.mu.Lock()
	defer w.op.hub.mu.Unlock()
	w.unwatch()
	w.crowd.wordCame()
}

// unwatch leaves the store's word to whoever has the next turn. The watch ends beside this call: by now that may have got the record,
// whose lease runs. The hub is locked.
func (w *waiter) unwatch() {
	if !w.watching {
		return
	}
	if stop := w.crowd.stop; stop != nil {
		id := w.op.id
		go func() {
			defer contain(context.Background(), "store's watch", slog.String("key", id.Short()))
			stop()
		}()
	}
	w.ended, w.crowd.stop = nil, nil
	w.watching, w.crowd.watched, w.crowd.word = false, false, false
}
