package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/probe"
)

// atNoPoll is how long work takes whose end no pause of a waiter falls on.
const atNoPoll = 20*time.Second + time.Microsecond

// The cost of waiting to the store does not grow with the number of waiting callers: each claims when it comes, and
// then one asks for all.
func TestOneAsksForAll(t *testing.T) {
	const many = 1000
	for name, c := range map[string]struct {
		word, elsewhere bool
		late            time.Duration // what there may be between the end and the last answer
	}{
		"an attempt of the same receiver": {},
		"of another process":              {elsewhere: true, late: 1500 * time.Millisecond},
		"where the store sends word":      {word: true, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWordStore()
				var s everonce.Store = w.faultStore
				if c.word {
					s = w
				}
				here := newReceiver(t, s, everonce.Refuse, nil)
				there := here
				if c.elsewhere {
					there = newReceiver(t, s, everonce.Refuse, nil)
				}
				release, wg := running(t, there)
				time.AfterFunc(atNoPoll, func() { close(release) })
				start := time.Now()
				for range many {
					wg.Go(func() {
						res, _ := do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
						checkEqual(t, "value", res.Value, "v")
						if d := time.Since(start) - atNoPoll; d < 0 || d > c.late {
							t.Errorf("it was answered %v after the end", d)
						}
					})
				}
				synctest.Wait()
				checkEqual(t, "claims of those who have come", w.count("Claim"), 1+many+1)
				wg.Wait()
				if n := w.count("Claim") - 1 - many; n > 50 { // at most two in a second, and some more at the start
					t.Errorf("while they waited and at the end there were %d claims", n)
				}
				if n := w.count("Get"); n > 2 {
					t.Errorf("%d watches were asked for", n)
				}
			})
		})
	}
}

// So it is with transactions, each of which takes a connection. A transaction whose time is up looks once more, and
// wakes no other.
func TestOneTransactionAsksForAll(t *testing.T) {
	const many = 100
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		r, g := newTxReceiver(t, s, &o), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, g)
		time.AfterFunc(atNoPoll, func() { close(release) })
		transactions := func() int { return s.count("Begin") + s.count("Get") }
		ready := transactions()
		for i := range many {
			wg.Go(func() {
				limit, want := time.Hour, everonce.Replayed
				if i >= many/2 {
					limit, want = time.Duration(i)*100*time.Millisecond, everonce.InProgress
				}
				start := time.Now()
				res, err := everonce.Transact(t.Context(), r, keyOf("x"), func(context.Context, *mapTx) (string, error) {
					t.Error("the work ran")
					return "", nil
				}, everonce.WithWait(limit))
				checkEqual(t, fmt.Sprintf("outcome (%v)", err), res.Outcome, want)
				if want == everonce.InProgress {
					checkEqual(t, "it waited for", time.Since(start), limit)
				}
			})
		}
		wg.Wait()
		if n := transactions() - ready - many - many/2; n > 50 {
			t.Errorf("beside the %d that came and the %d whose time was up there were %d transactions", many, many/2, n)
		}
	})
}

// No caller misses the end because the one with the turn has gone, or waits for another's call that hangs.
func TestATurnThatEndsOtherwise(t *testing.T) {
	type gone struct{}
	for name, c := range map[string]struct {
		do   behaviour
		late time.Duration // what there may be between the end and the others' answers
	}{
		"its caller goes": {do: func(ctx context.Context, _ func() error) error {
			ctx.Value(gone{}).(context.CancelFunc)() //nolint:forcetypeassert // each has one
			return ctx.Err()
		}},
		"its caller goes, and the answer comes": {do: func(ctx context.Context, call func() error) error {
			ctx.Value(gone{}).(context.CancelFunc)() //nolint:forcetypeassert // each has one
			return call()
		}},
		"it panics":                  {do: func(context.Context, func() error) error { panic("the store") }},
		"it leaves its goroutine":    {do: func(context.Context, func() error) error { runtime.Goexit(); return nil }},
		"the store refuses for good": {do: refuse(driver.ErrCorruptRecord)},
		"its call hangs":             {do: deaf(time.Minute), late: 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, r)
				start := time.Now()
				var mu sync.Mutex
				answered := 0
				for range 5 {
					wg.Go(func() {
						defer func() { _ = recover() }()
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						res, err := everonce.Do(context.WithValue(ctx, gone{}, cancel), r, keyOf("x"), never(t), everonce.WithWait(time.Hour))
						if err == nil && time.Since(start) <= atNoPoll+c.late {
							mu.Lock()
							defer mu.Unlock()
							answered++
							checkEqual(t, "value", res.Value, "v")
						}
					})
				}
				time.Sleep(atNoPoll)
				s.on("Claim", s.count("Claim")+1, c.do)
				close(release)
				wg.Wait()
				if want := 4; answered != want && answered != 5 {
					t.Errorf("%d were answered in time, want %d", answered, want)
				}
			})
		})
	}
}

// Each caller's own limit applies, whichever caller asks.
func TestEachWaitsWithinItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		start := time.Now()
		for i := range 19 {
			limit := time.Duration(i+1) * time.Second
			wg.Go(func() {
				do(t, here, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(limit))
				checkEqual(t, "it waited for", time.Since(start), limit)
			})
		}
		wg.Go(func() { // whose last look finds it
			do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(atNoPoll+time.Millisecond))
			if d := time.Since(start) - atNoPoll; d < 0 || d > time.Millisecond {
				t.Errorf("it was answered %v after the end", d)
			}
		})
		time.Sleep(atNoPoll)
		close(release)
		wg.Wait()
	})
}

// The caller that watches the store for all may leave: another then watches at once.
func TestWordIsSeenToByAnother(t *testing.T) {
	for name, end := range map[string]time.Duration{
		"long after that": atNoPoll,
		"just then":       5*time.Second + time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWordStore()
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, there)
				start := time.Now()
				for i := range 5 {
					wg.Go(func() {
						do(t, here, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(time.Duration(i+1)*time.Second))
					})
					synctest.Wait()
				}
				wg.Go(func() {
					do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
					checkEqual(t, "it waited for", time.Since(start), end)
				})
				time.Sleep(end)
				close(release)
				wg.Wait()
				if n := s.count("Get"); n > 7 {
					t.Errorf("%d watches were asked for, one after the other, by 6", n)
				}
				synctest.Wait()
				checkEqual(t, "watches left", s.open, 0)
			})
		})
	}
}

// An end in another process soon after a late duplicate has come is found soon, however long others have waited.
func TestALateCallerNeedNotWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		waits := func() {
			wg.Go(func() { do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour)) })
		}
		waits()
		time.Sleep(time.Minute)
		waits()
		synctest.Wait()
		close(release)
		start := time.Now()
		wg.Wait()
		if d := time.Since(start); d > 30*time.Millisecond {
			t.Errorf("it was answered %v after the end", d)
		}
	})
}

// A store that fails in the middle of a wait fails the calls that ask it meanwhile, one at a time, and not all who
// wait.
func TestAShortFailureReachesFewWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		var mu sync.Mutex
		failed, replayed := 0, 0
		for range 100 {
			wg.Go(func() {
				_, err := everonce.Do(t.Context(), here, keyOf("x"), never(t), everonce.WithWait(time.Hour))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					replayed++
				case errors.Is(err, everonce.ErrStore):
					failed++
				default:
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		s.on("Claim", 0, refuse(errNet))
		time.Sleep(5 * time.Second)
		s.heal()
		close(release)
		wg.Wait()
		if failed == 0 || failed > 10 || replayed != 100-failed {
			t.Errorf("in 5 s of failure %d of 100 calls failed; %d were answered", failed, replayed)
		}
	})
}

// When many callers leave at once, as when a service stops, none of them asks the store any more. A caller that
// remains is answered as before.
func TestManyCallersLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWordStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		ctx, stop := context.WithCancel(t.Context())
		start := time.Now()
		for i := range 1000 {
			if i == 500 {
				wg.Go(func() {
					do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
					checkEqual(t, "it waited for", time.Since(start), atNoPoll)
				})
			}
			wg.Go(func() {
				res, err := everonce.Do(ctx, here, keyOf("x"), never(t), everonce.WithWait(time.Hour))
				checkOutcome(t, res, err, everonce.InProgress, everonce.ErrInProgress)
				checkErr(t, err, context.Canceled)
				checkEqual(t, "it waited for", time.Since(start), 10*time.Second+time.Microsecond)
			})
		}
		time.Sleep(10*time.Second + time.Microsecond)
		claims, watches := s.count("Claim"), s.count("Get")
		stop()
		synctest.Wait()
		if n := s.count("Claim") - claims; n > 1 {
			t.Errorf("%d claims were made because many went", n)
		}
		if n := s.count("Get") - watches; n > 1 {
			t.Errorf("%d watches were asked for because many went", n)
		}
		if held := probe.Receiver(here); held.Callers != 1 || held.Keys != 1 {
			t.Errorf("%+v", held)
		}
		time.Sleep(atNoPoll - time.Since(start))
		close(release)
		wg.Wait()
		synctest.Wait()
		checkEqual(t, "watches left", s.open, 0)
	})
}

// Work may wait for another operation: its own lease is renewed meanwhile. Two that wait for each other end within
// their limits.
func TestWorkThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, newFaultStore(), everonce.Refuse, &everonce.Options{Lease: 3 * time.Second})
		waitsFor := func(key string, limit time.Duration, want everonce.Outcome, wantErr error) work {
			return func(ctx context.Context, _ *everonce.Attempt) (string, error) {
				time.Sleep(time.Second)
				res, err := everonce.Do(ctx, r, keyOf(key), never(t), everonce.WithWait(limit))
				checkOutcome(t, res, err, want, wantErr)
				return key, ctx.Err()
			}
		}
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			do(t, r, keyOf("a"), waitsFor("b", time.Minute, everonce.InProgress, everonce.ErrInProgress), everonce.Executed, nil)
			checkEqual(t, "the first ended after", time.Since(start), time.Second+time.Minute)
		})
		wg.Go(func() {
			do(t, r, keyOf("b"), waitsFor("a", time.Hour, everonce.Replayed, nil), everonce.Executed, nil)
			checkEqual(t, "the second ended after", time.Since(start), time.Second+time.Minute)
		})
		wg.Wait()
	})
}
