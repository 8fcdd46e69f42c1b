package drivertest

import (
	"context"
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// watch asks the store, through a separate handle, for a notification of the end of the running attempt.
func (e *env) watch(id driver.RecordID) driver.WatchResult {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	res, err := e.s.(driver.ChangeWaiter).Watch(ctx, driver.WatchRequest{ID: id})
	cancel() // it bounds the call alone
	if err != nil || res.Ended == nil || res.Stop == nil {
		e.Fatalf("Watch: %+v, %v", res, err)
	}
	return res
}

// mustNotify waits for the notification.
func (e *env) mustNotify(what string, w driver.WatchResult) {
	e.Helper()
	select {
	case <-w.Ended:
	case <-e.ctx.Done():
		e.Fatalf("no word came of %s", what)
	}
	w.Stop()
	w.Stop()
}

// otherWord waits for word of another key, so that word which was sent before it has come too.
func (e *env) otherWord() {
	e.Helper()
	a := e.claimed(claimReq(e.key()))
	w := e.watch(a.req.ID)
	a.completed("done")
	e.mustNotify("the end of another attempt", w)
}

// checkWatch lets attempts end while others, of the same handle and of another, wait for word of it.
func checkWatch(e *env) {
	peer := e.to(e.reporter, e.h.Peer)
	ends := map[string]func(a *attempt){
		"a completion":        func(a *attempt) { a.completed("done") },
		"a release":           func(a *attempt) { a.released(driver.StateReleased) },
		"an abandonment":      func(a *attempt) { a.released(driver.StateAbandoned) },
		"a release by nonce":  func(a *attempt) { e.release(byNonce(a.req)) },
		"a forced settlement": func(a *attempt) { e.claimed(a.taking(driver.TakeForced)).completed("settled") },
	}
	for what, end := range ends {
		a := e.claimed(claimReq(e.key()))
		a.stepped("mail", driver.StepDone)
		stopped := peer.watch(a.req.ID)
		watches := []driver.WatchResult{e.watch(a.req.ID), peer.watch(a.req.ID), peer.watch(a.req.ID)}
		stopped.Stop()
		e.is("Renew", a.renew(a.renewal()), nil)
		a.stepped("hook", driver.StepDone)
		e.otherWord()
		peer.otherWord()
		for _, w := range watches {
			select {
			case <-w.Ended:
				e.Errorf("word of %s came before it", what)
			default:
			}
		}
		end(a)
		for _, w := range watches {
			e.mustNotify(what, w)
		}
		e.mustNotify(what+" that is over", peer.watch(a.req.ID))
	}
	e.mustNotify("an operation that never began", e.watch(e.key().RecordID()))
}

// checkWatchWakes has receivers of another process wait for an attempt, through the engine. Word may be lost: what
// is certain is that they are answered.
func checkWatchWakes(e *env) {
	key := e.key()
	a := e.claimed(claimReq(key))
	var wg sync.WaitGroup
	for range 4 {
		r := e.receiver(e.h.Peer, everonce.Refuse)
		wg.Go(func() {
			res, err := everonce.Do(e.ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
				e.Errorf("the work of a waiter ran")
				return "", nil
			}, sumA, everonce.WithWait(hung))
			if err != nil || res.Value != "done" {
				e.Errorf("a waiter is answered %q, %v", res.Value, err)
			}
		})
	}
	e.pass(4 * short) // most of them wait by now
	a.completed("done")
	wg.Wait()
}
