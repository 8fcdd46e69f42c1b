package enginetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// blocked is a store whose watches take their time to end.
type blocked struct {
	*wordStore
	stop func()
}

func (s *blocked) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	res, err := s.wordStore.Watch(ctx, req)
	its := res.Stop
	res.Stop = func() { s.stop(); its() }
	return res, err
}

// A store must not block at the end of a watch. If it does, no caller loses its lease: neither one that was granted
// the record after a wait, nor one that works beside it. A panic there does not reach the call.
func TestAWatchThatDoesNotEndCostsNoLease(t *testing.T) {
	for name, stop := range map[string]func(){
		"it blocks": func() { time.Sleep(time.Hour) },
		"it panics": func() { panic("the store") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &blocked{newWordStore(), stop}
				o := &everonce.Options{Lease: 3 * time.Second, Wait: time.Hour}
				here, there := newReceiver(t, s, everonce.Reexecute, o), newReceiver(t, s, everonce.Reexecute, o)
				release, wg := runningInVain(t, there)
				long := func(_ context.Context, a *everonce.Attempt) (string, error) {
					time.Sleep(20 * time.Second)
					checkEqual(t, "Lost", a.Lost(), false)
					return "v", nil
				}
				wg.Go(func() { do(t, here, keyOf("beside"), long, everonce.Executed, nil) })
				wg.Go(func() { do(t, here, keyOf("x"), long, everonce.Executed, nil) })
				time.Sleep(atNoPoll)
				close(release)
				synctest.Wait()
				start := time.Now()
				do(t, there, keyOf("x"), never(t), everonce.Replayed, nil)
				checkEqual(t, "it waited for", time.Since(start), 20*time.Second)
				wg.Wait()
				time.Sleep(time.Hour)
				synctest.Wait()
			})
		})
	}
}

// Nor does it keep a transaction open.
func TestAWatchThatDoesNotEndKeepsNoTransactionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMapStore()
		s := &watchedMap{m}
		here, there := newTxReceiver(t, s, nil), newReceiver(t, m, everonce.Refuse, nil)
		release, wg := runningInVain(t, there)
		start := time.Now()
		wg.Go(func() {
			res, err := everonce.Transact(t.Context(), here, keyOf("x"), func(context.Context, *mapTx) (string, error) {
				if d := time.Since(start) - atNoPoll; d > 1500*time.Millisecond {
					t.Errorf("it began %v after the end", d)
				}
				return "v", nil
			}, everonce.WithWait(time.Hour))
			checkOutcome(t, res, err, everonce.Executed, nil)
		})
		time.Sleep(atNoPoll)
		close(release)
		wg.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
	})
}

// watchedMap is a mapStore whose watches never tell, nor end.
type watchedMap struct{ *mapStore }

func (s *watchedMap) Watch(context.Context, driver.WatchRequest) (driver.WatchResult, error) {
	return driver.WatchResult{Stop: func() { time.Sleep(time.Hour) }}, nil
}

// If a watch fails, the remaining callers try again, so that they get the end at once; but seldom, as it may always
// fail.
func TestWordIsAskedForAgain(t *testing.T) {
	for name, away := range map[string]time.Duration{"after an outage": time.Minute, "in vain": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const end = 10*time.Minute + time.Microsecond
				s := &countsWatches{wordStore: newWordStore()}
				s.wordStore.err = errNet
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, there)
				start := time.Now()
				for range 100 {
					wg.Go(func() {
						do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
						if d := time.Since(start) - end; away < end && d != 0 || d > 1501*time.Millisecond {
							t.Errorf("it was answered %v after the end", d)
						}
					})
				}
				time.AfterFunc(away, func() {
					s.wordStore.mu.Lock()
					defer s.wordStore.mu.Unlock()
					s.wordStore.err = nil
				})
				time.Sleep(end)
				claims, watches := s.count("Claim")-101, int(s.n.Load())
				close(release)
				wg.Wait()
				if claims < 300 || claims > 900 { // one in a second, as if there were word
					t.Errorf("in %v there were %d claims", end, claims)
				}
				if most := int(min(away, end)/(10*time.Second)) + 1; watches < most/2 || watches > most {
					t.Errorf("in %v of failure word was asked for %d times", min(away, end), watches)
				}
			})
		})
	}
}

// countsWatches counts what was asked of a store whether or not it answered.
type countsWatches struct {
	*wordStore
	n atomic.Int64
}

func (s *countsWatches) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	s.n.Add(1)
	return s.wordStore.Watch(ctx, req)
}

// Of those who wait where a store sends word, too, a failure of the store reaches few.
func TestAFailureReachesFewWhereThereIsWord(t *testing.T) {
	for name, watched := range map[string]error{"of its claims": nil, "of all": errNet} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWordStore()
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, there)
				var mu sync.Mutex
				failed := 0
				for range 100 {
					wg.Go(func() {
						if _, err := everonce.Do(t.Context(), here, keyOf("x"), never(t), everonce.WithWait(time.Hour)); errors.Is(err, everonce.ErrStore) {
							mu.Lock()
							defer mu.Unlock()
							failed++
						} else {
							checkErr(t, err, nil)
						}
					})
				}
				time.Sleep(10 * time.Second)
				s.on("Claim", 0, refuse(errNet))
				s.mu.Lock()
				s.err = watched
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
				s.heal()
				close(release)
				wg.Wait()
				if failed == 0 || failed > 15 {
					t.Errorf("in 5 s of failure %d of 100 calls failed", failed)
				}
			})
		})
	}
}

// hangsFirst is a store whose first watch is not answered.
type hangsFirst struct {
	*wordStore
	asked atomic.Bool
}

func (s *hangsFirst) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	if !s.asked.Swap(true) {
		<-ctx.Done()
		return driver.WatchResult{}, cutShort(ctx)
	}
	return s.wordStore.Watch(ctx, req)
}

// A caller that leaves while it starts a watch does not show whether the store can watch: the others start one
// without delay.
func TestACallerLeavesWhileItStartsAWatch(t *testing.T) {
	for name, c := range map[string]struct{ limit, gone time.Duration }{
		"its time is up":    {500 * time.Millisecond, time.Hour},
		"its context ended": {time.Hour, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &hangsFirst{wordStore: newWordStore()}
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, there)
				ctx, cancel := context.WithTimeout(t.Context(), c.gone)
				defer cancel()
				wg.Go(func() {
					res, err := everonce.Do(ctx, here, keyOf("x"), never(t), everonce.WithWait(c.limit))
					checkOutcome(t, res, err, everonce.InProgress, everonce.ErrInProgress)
				})
				synctest.Wait()
				const end = 5*time.Second + time.Microsecond
				start := time.Now()
				wg.Go(func() {
					do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
					checkEqual(t, "it waited for", time.Since(start), end)
				})
				time.Sleep(end)
				close(release)
				wg.Wait()
			})
		})
	}
}

// At the end that the store sends word of, nothing is asked for but the answer. Where the attempt of another has
// begun instead, word is asked for again at once.
func TestTheEndIsNotWatchedFor(t *testing.T) {
	for name, c := range map[string]struct {
		first   func(*testing.T, *everonce.Receiver) (chan struct{}, *sync.WaitGroup)
		second  time.Duration // how long the attempt of another takes that begins then
		watches int64
	}{
		"an answer":      {running, 0, 1},
		"a next attempt": {runningInVain, 20 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &countsWatches{wordStore: newWordStore()}
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := c.first(t, there)
				const end = 20*time.Second + time.Microsecond
				start := time.Now()
				wg.Go(func() {
					do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
					checkEqual(t, "it waited for", time.Since(start), end+c.second)
				})
				time.Sleep(end)
				if c.second > 0 { // its claim is before the notified caller's
					var begun atomic.Bool
					s.on("Claim", 0, func(_ context.Context, call func() error) error {
						if begun.CompareAndSwap(false, true) {
							wg.Go(func() {
								do(t, there, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
									time.Sleep(c.second)
									return "v", nil
								}, everonce.Executed, nil)
							})
							time.Sleep(time.Millisecond)
						}
						return call()
					})
				}
				close(release)
				wg.Wait()
				synctest.Wait()
				checkEqual(t, "watches", s.n.Load(), c.watches)
			})
		})
	}
}
