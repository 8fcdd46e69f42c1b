package enginetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A waiter that gives up leaves the others their wake.
func TestWaiterThatLeavesIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, newFaultStore(), everonce.Refuse, nil)
		release, wg := running(t, r)
		start := time.Now()
		wg.Go(func() {
			do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(time.Second))
		})
		wg.Go(func() {
			do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
			checkEqual(t, "it waited for", time.Since(start), 20*time.Second+time.Microsecond)
		})
		time.AfterFunc(20*time.Second+time.Microsecond, func() { close(release) })
		wg.Wait()
	})
}

// An attempt that ends between a duplicate's claim and its wait is not missed: it asks once more before it waits.
func TestEndBetweenTheClaimAndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		release, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			do(t, r, keyOf("x"), blocks(release, "v"), everonce.Executed, nil)
		}()
		synctest.Wait()
		s.on("Claim", 2, func(_ context.Context, call func() error) error {
			err := call()
			close(release)
			<-done
			return err
		})
		start := time.Now()
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
		checkEqual(t, "it waited for", time.Since(start), time.Duration(0))
	})
}

// A store that sends word is seldom asked again, also where word came, and somebody else has the key since.
func TestWordIsAskedForAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWordStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		s.on("Release", 1, func(_ context.Context, call func() error) error {
			err := call()
			diedIn(t, s.under, keyOf("x"), time.Hour)
			return err
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			do(t, there, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
				time.Sleep(10 * time.Second)
				return "", everonce.NotDone(errWork)
			}, everonce.Failed, errWork)
		})
		synctest.Wait()
		do(t, here, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(20*time.Second))
		wg.Wait()
		if at := s.times("Claim"); at[3].Sub(at[2]) < 500*time.Millisecond { // the first is from there; the next two follow one another
			t.Errorf("it asked again after %v", at[3].Sub(at[2]))
		}
		if n := s.count("Claim"); n > 60 { // one or two in a second
			t.Errorf("it asked %d times in 20 s", n)
		}
	})
}

// hungWord is a store whose watches answer nothing.
type hungWord struct{ *faultStore }

func (hungWord) Watch(ctx context.Context, _ driver.WatchRequest) (driver.WatchResult, error) {
	<-ctx.Done()
	return driver.WatchResult{}, ctx.Err()
}

// To ask for word that does not come takes no longer than a store call may, nor than the wait.
func TestWatchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungWord{newFaultStore()}
		r := newReceiver(t, &s, everonce.Refuse, &everonce.Options{StoreTimeout: 5 * time.Second})
		diedIn(t, s, keyOf("x"), time.Hour)
		for _, wait := range []time.Duration{time.Second, 20 * time.Second} {
			start, claims := time.Now(), s.count("Claim")
			do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(wait))
			checkEqual(t, "it waited for", time.Since(start), wait)
			if n := s.count("Claim") - claims; wait > 5*time.Second && n < 10 {
				t.Errorf("it asked %d times in %v", n, wait)
			}
		}
	})
}

// A call that names no question is refused under Reconcile whatever the record says, and what cannot be decoded
// says what it is.
func TestReplaysFromMemoryAreChecked(t *testing.T) {
	s := newFaultStore()
	do(t, newReceiver(t, s.under, everonce.Refuse, nil), keyOf("x"), returns("v", nil), everonce.Executed, nil)
	asks := newReceiver(t, s.under, everonce.Reconcile, nil)
	checkErr(t, asks.Ready(context.Background()), nil)
	do(t, asks, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument)
	for _, store := range []everonce.Store{s, s.under} {
		_, err := everonce.Do(context.Background(), newReceiver(t, store, everonce.Refuse, nil), keyOf("x"), func(context.Context, *everonce.Attempt) (int, error) {
			return 0, errors.New("must not run")
		})
		checkErr(t, err, everonce.ErrUndecodable)
		checkEqual(t, "Kind", asError(t, err).Kind, driver.ResultValue)
	}
}

// Whichever way an attempt ends, a duplicate that waits is woken at once, and need not ask.
func TestWokenByEveryEnd(t *testing.T) {
	const at = 20*time.Second + time.Microsecond // when no poll would fall
	for name, end := range map[string]func(tx *mapTx) error{
		"panic":    func(*mapTx) error { panic("x") },
		"goexit":   func(*mapTx) error { runtime.Goexit(); return nil },
		"error":    func(*mapTx) error { return errWork },
		"deadlock": func(tx *mapTx) error { return tx.Deadlock() },
	} {
		for _, mode := range []string{"Do", "Transact"} {
			t.Run(mode+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newMapStore()
					x := newTxReceiver(t, s, &everonce.Options{TxRetries: -1})
					r := newReceiver(t, s, everonce.Reexecute, nil)
					first := func(_ context.Context, tx *mapTx) (int, error) {
						time.Sleep(at)
						return 0, end(tx)
					}
					go func() {
						defer func() { _ = recover() }()
						if mode == "Do" {
							_, _ = everonce.Do(t.Context(), r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (int, error) { return first(ctx, &mapTx{}) })
							return
						}
						_, _ = everonce.Transact(t.Context(), x, keyOf("x"), first)
					}()
					synctest.Wait()
					start := time.Now()
					second := func() int { checkEqual(t, "it waited for", time.Since(start), at); return 7 }
					var res everonce.Result[int]
					var err error
					if mode == "Do" {
						res, err = everonce.Do(t.Context(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (int, error) { return second(), nil }, everonce.WithWait(time.Hour))
					} else {
						res, err = everonce.Transact(t.Context(), x, keyOf("x"), func(context.Context, *mapTx) (int, error) { return second(), nil }, everonce.WithWait(time.Hour))
					}
					checkOutcome(t, res, err, everonce.Executed, nil)
				})
			})
		}
	}
}
