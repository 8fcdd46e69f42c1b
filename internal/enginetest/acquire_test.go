package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A claim whose answer was lost is sent again with the same nonce, and is the same claim (rule 4).
func TestClaimIsRepeatedWithItsNonce(t *testing.T) {
	for name, first := range map[string]behaviour{"lost": lose(errNet), "not done": refuse(errNet), "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				s.on("Claim", 1, first)
				res, _ := do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
				checkEqual(t, "Attempt", res.Attempt, 1)
				claims := requests[driver.ClaimRequest](&s.faults, "Claim")
				checkEqual(t, "claims", len(claims), 2)
				checkEqual(t, "the second claim", claims[1], claims[0])
				checkEqual(t, "releases", s.count("Release"), 0)
			})
		})
	}
}

// A claim that failed for good is taken back by its nonce, so that no call waits for an attempt that never ran, and
// a delayed packet of it has no effect.
func TestClaimThatFailedIsRetracted(t *testing.T) {
	for name, c := range map[string]struct {
		do    behaviour
		state driver.State
	}{
		"lost":     {lose(errNet), driver.StateReleased},
		"not done": {refuse(errNet), driver.StateReleased},
		"hangs":    {hang, driver.StateReleased},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				s.on("Claim", 0, c.do)
				_, err := do(t, r, keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrStore)
				if name != "hangs" {
					checkErr(t, err, errNet)
				}
				claims := requests[driver.ClaimRequest](&s.faults, "Claim")
				checkEqual(t, "claims", len(claims), 3)
				at := s.times("Claim")
				for i := range at[1:] {
					if pause := at[i+1].Sub(at[i]); pause < 5*time.Millisecond {
						t.Errorf("%v between two tries", pause)
					}
				}
				released := requests[driver.ReleaseRequest](&s.faults, "Release")
				checkEqual(t, "releases", len(released), 1)
				checkEqual(t, "by nonce", released[0].Nonce, claims[0].Nonce)
				checkEqual(t, "without a token", released[0].Token, driver.Token(0))
				checkEqual(t, "state", s.record(t, keyOf("x")).State, c.state)
				checkEqual(t, "class", s.record(t, keyOf("x")).LastError, "claim")
				// The delayed packet of the claim is refused, and the key is free.
				_, err = s.under.Claim(context.Background(), claims[0])
				checkErr(t, err, everonce.ErrAttemptEnded)
				s.heal()
				do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
			})
		})
	}
}

// A takeover that was retracted leaves the record unknown again: it has not been settled.
func TestRetractedTakeoverIsAbandonedAgain(t *testing.T) {
	for _, p := range []everonce.Policy{everonce.Reexecute, everonce.Reconcile} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				diedIn(t, s, keyOf("x"), time.Second)
				time.Sleep(time.Minute)
				r := newReceiver(t, s, p, nil)
				s.on("Claim", 0, lose(errNet))
				do(t, r, keyOf("x"), never(t), everonce.StoreFailed, errNet, askNever(t))
				rec := s.record(t, keyOf("x"))
				checkEqual(t, "state", rec.State, driver.StateAbandoned)
				// It expires as everything unsettled does under Reexecute, and never otherwise (rule 13).
				checkEqual(t, "expires", !rec.PurgeAt.IsZero(), p == everonce.Reexecute)
			})
		})
	}
}

// Refusals of a store that will be the same at once are not repeated, and nothing is taken back.
func TestFinalErrorsOfAClaim(t *testing.T) {
	for _, sentinel := range []error{
		everonce.ErrSchema, driver.ErrNewerRecord, driver.ErrCorruptRecord, driver.ErrStoreFull, driver.ErrTooLarge, driver.ErrIdentity,
		everonce.ErrAttemptEnded, everonce.ErrInvalidKey, everonce.ErrInvalidArgument, everonce.ErrInTransaction,
	} {
		t.Run(sentinel.Error(), func(t *testing.T) {
			s := newFaultStore()
			s.on("Claim", 0, refuse(fmt.Errorf("store: %w", sentinel)))
			_, err := do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrStore)
			checkErr(t, err, sentinel)
			checkEqual(t, "claims", s.count("Claim"), 1)
			checkEqual(t, "releases", s.count("Release"), 0)
		})
	}
}

func TestCallerGoneBeforeTheClaim(t *testing.T) {
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	for _, s := range []everonce.Store{newFaultStore(), memstore.New(nil)} {
		r := newReceiver(t, s, everonce.Refuse, nil)
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
		checkErr(t, err, gone)
		checkEqual(t, "outcome", res.Outcome, everonce.Failed)
		checkEqual(t, "record", recordIn(t, s, keyOf("x")), driver.Record{})
		if f, ok := s.(*faultStore); ok {
			checkEqual(t, "claims", f.count("Claim"), 0)
			checkEqual(t, "releases", f.count("Release"), 0)
		}
	}
}

func TestCallerGoneDuringTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Claim", 1, hang)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
		checkOutcome(t, res, err, everonce.Failed, context.DeadlineExceeded)
		checkEqual(t, "claims", s.count("Claim"), 1)
		checkEqual(t, "releases", s.count("Release"), 1) // it may have been written
		checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
	})
}

// An answer that comes when the lease that it gives may be over is worth nothing.
func TestClaimWhoseAnswerTookLongerThanItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: time.Second})
		s.on("Claim", 1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(time.Second)
			return err
		})
		do(t, r, keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrStore)
		checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	})
}

// A waiter is woken by the completion, at once.
func TestWaitIsWokenAtCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
		release, wg := running(t, r)
		start := time.Now()
		for range 5 {
			wg.Go(func() {
				res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
				checkEqual(t, "value", res.Value, "v")
				checkEqual(t, "it waited for", time.Since(start), 3*time.Second+time.Microsecond)
			})
		}
		time.Sleep(3*time.Second + time.Microsecond)
		close(release)
		wg.Wait()
	})
}

// When the first attempt is released one waiter claims, and the others wait on (rule 15).
func TestWaitIsWokenAtRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
		release, wg := runningInVain(t, r)
		start := time.Now()
		var running, executed, replayed atomic.Int32
		for range 8 {
			wg.Go(func() {
				res, err := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
					if running.Add(1) > 1 {
						t.Error("two attempts at once")
					}
					defer running.Add(-1)
					checkEqual(t, "the waiter began at", time.Since(start), time.Second)
					time.Sleep(time.Second)
					return "second", nil
				}, everonce.WithWait(time.Hour))
				checkErr(t, err, nil)
				checkEqual(t, "value", res.Value, "second")
				switch res.Outcome {
				case everonce.Executed:
					executed.Add(1)
				case everonce.Replayed:
					replayed.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		close(release)
		wg.Wait()
		checkEqual(t, "executed", executed.Load(), 1)
		checkEqual(t, "replayed", replayed.Load(), 7)
		checkEqual(t, "all was over at", time.Since(start), 2*time.Second)
	})
}

func TestWaitEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Wait: 3 * time.Second})
		diedIn(t, s, keyOf("x"), time.Hour)
		start := time.Now()
		_, err := do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress)
		checkEqual(t, "it waited for", time.Since(start), 3*time.Second)
		checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, time.Second)
		if n := s.count("Claim"); n < 5 || n > 20 {
			t.Errorf("it asked %d times in 3 s", n)
		}
		start = time.Now()
		do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(time.Second))
		checkEqual(t, "with a separate limit", time.Since(start), time.Second)
		start = time.Now()
		claims := s.count("Claim")
		do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(0))
		checkEqual(t, "without waiting", time.Since(start), time.Duration(0))
		checkEqual(t, "its claims", s.count("Claim")-claims, 1)
		checkEqual(t, "the wait's claims left it alone", s.record(t, keyOf("x")).Attempt, 1)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, nil)
		diedIn(t, s, keyOf("x"), time.Hour)
		gone := errors.New("the client went away")
		ctx, cancel := context.WithCancelCause(context.Background())
		start := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { cancel(gone) })
		_, err := everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithWait(time.Hour))
		checkErr(t, err, gone)
		checkErr(t, err, everonce.ErrInProgress)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.InProgress)
		checkEqual(t, "it waited for", time.Since(start), 1500*time.Millisecond)
		checkEqual(t, "the record", recordIn(t, s, keyOf("x")).Attempt, 1)
	})
}

// An attempt of another process wakes no waiter here: a waiter asks again, soon.
func TestWaitAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		wg.Go(func() {
			time.Sleep(20 * time.Second)
			close(release)
		})
		start := time.Now()
		res, _ := do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
		checkEqual(t, "value", res.Value, "v")
		if d := time.Since(start) - 20*time.Second; d < 0 || d > 2*time.Second {
			t.Errorf("it was found %v after the completion", d)
		}
		wg.Wait()
	})
}

// A waiter knows when the lease of a dead process ends, and asks then.
func TestWaitForADeadProcess(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(nil)
				r := newReceiver(t, s, p, nil)
				diedIn(t, s, keyOf("x"), 10*time.Second)
				start := time.Now()
				switch p {
				case everonce.Reexecute:
					res, _ := do(t, r, keyOf("x"), returns("second", nil), everonce.Executed, nil, everonce.WithWait(time.Minute))
					checkEqual(t, "Attempt", res.Attempt, 2)
				case everonce.Refuse:
					do(t, r, keyOf("x"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown, everonce.WithWait(time.Minute))
				case everonce.Reconcile:
					res, _ := do(t, r, keyOf("x"), never(t), everonce.Executed, nil, everonce.WithWait(time.Minute), answer(everonce.Happened("found"), nil))
					checkEqual(t, "Reconciled", res.Reconciled, true)
				}
				if d := time.Since(start); d < 10*time.Second || d > 10*time.Second+10*time.Millisecond {
					t.Errorf("it ended after %v, want at the end of the lease of 10 s", d)
				}
			})
		})
	}
}

// A waiter compares its fingerprint first (rule 15).
func TestWaitComparesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, nil)
		diedIn(t, s, keyOf("x"), time.Hour, func(req *driver.ClaimRequest) { req.Fingerprint = driver.Fingerprint(everonce.FingerprintOf(1)) })
		start := time.Now()
		do(t, r, keyOf("x"), never(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2), everonce.WithWait(time.Hour))
		checkEqual(t, "it waited for", time.Since(start), time.Duration(0))
	})
}

// Each waiter decodes a separate copy.
func TestWaitersShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: everonce.Raw(), Wait: time.Hour})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				res, err := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) ([]byte, error) {
					time.Sleep(time.Second)
					return []byte("value"), nil
				})
				checkErr(t, err, nil)
				checkEqual(t, "value", string(res.Value), "value")
				for j := range res.Value {
					res.Value[j] = byte('0' + i)
				}
			})
		}
		wg.Wait()
	})
}

// A claim that came through when the caller was gone is taken back: the work is not called.
func TestCallerGoneWhenTheClaimIsAnswered(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s.on("Claim", 1, func(_ context.Context, call func() error) error {
		cancel()
		return call()
	})
	res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
	checkOutcome(t, res, err, everonce.Failed, context.Canceled)
	checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateReleased)
}
