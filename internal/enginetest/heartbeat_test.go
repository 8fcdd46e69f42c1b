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
	"github.com/everonce/everonce/store/memstore"
)

// sleeps is work that takes a time and does not care for its context.
func sleeps(d time.Duration, v string) work {
	return func(context.Context, *everonce.Attempt) (string, error) {
		time.Sleep(d)
		return v, nil
	}
}

func TestHeartbeatAtAThirdOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		start := time.Now()
		do(t, r, keyOf("x"), sleeps(23*time.Second, "v"), everonce.Executed, nil)
		var at []time.Duration
		for _, beat := range s.times("Renew") {
			at = append(at, beat.Sub(start))
		}
		checkEqual(t, "beats", at, []time.Duration{4 * time.Second, 8 * time.Second, 12 * time.Second, 16 * time.Second, 20 * time.Second})
		time.Sleep(time.Hour)
		checkEqual(t, "beats after the end", s.count("Renew"), 5)

		do(t, r, keyOf("y"), func(context.Context, *everonce.Attempt) (string, error) {
			before := s.count("Renew")
			time.Sleep(time.Minute)
			checkEqual(t, "beats with a separate lease", s.count("Renew")-before, 2)
			return "", nil
		}, everonce.Executed, nil, everonce.WithLease(90*time.Second-1))
	})
}

func TestNothingRunsBeforeTheFirstBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Lease: 3 * time.Second})
		do(t, r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
			before := runtime.NumGoroutine()
			time.Sleep(time.Second - 1)
			synctest.Wait()
			if now := runtime.NumGoroutine(); now > before {
				t.Errorf("%d goroutines, %d before", now, before)
			}
			return "", nil
		}, everonce.Executed, nil)
	})
}

// The answer to the claim took a while: the first beat counts from before it was sent (rule 2).
func TestBeatsCountFromBeforeTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 9 * time.Second})
		s.on("Claim", 1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(2 * time.Second)
			return err
		})
		start := time.Now()
		do(t, r, keyOf("x"), sleeps(2*time.Second, "v"), everonce.Executed, nil)
		checkEqual(t, "the first beat", s.times("Renew")[0].Sub(start), 3*time.Second)
	})
}

func TestARenewalThatFailsIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		s.on("Renew", 1, refuse(errNet))
		s.on("Renew", 2, lose(errNet))
		start := time.Now()
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			time.Sleep(11 * time.Second)
			checkErr(t, ctx.Err(), nil)
			checkEqual(t, "Lost", a.Lost(), false)
			return "v", nil
		}, everonce.Executed, nil)
		var at []time.Duration
		for _, beat := range s.times("Renew") {
			at = append(at, beat.Sub(start))
		}
		checkEqual(t, "beats", at, []time.Duration{4 * time.Second, 5 * time.Second, 6 * time.Second, 10 * time.Second})
	})
}

// The owner's own deadline ends the work, though the store says nothing at all (rule 2).
func TestLocalDeadlineCancelsTheWork(t *testing.T) {
	for name, c := range map[string]struct {
		renew behaviour
		lost  time.Duration
	}{
		"the store fails":                 {refuse(errNet), 12 * time.Second},
		"the store hangs":                 {hang, 12 * time.Second},
		"the store is deaf":               {deaf(time.Hour), 12 * time.Second},
		"renewed, but the answer is lost": {lose(errNet), 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 12 * time.Second})
				s.on("Renew", 0, c.renew)
				start := time.Now()
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					<-ctx.Done()
					checkEqual(t, "the work's context ended at", time.Since(start), c.lost)
					checkErr(t, context.Cause(ctx), everonce.ErrLeaseLost)
					checkEqual(t, "Lost", a.Lost(), true)
					return "", context.Cause(ctx)
				}, everonce.Failed, everonce.ErrLeaseLost)
				rec := s.record(t, keyOf("x"))
				checkEqual(t, "class", rec.LastError, "lease_lost")
				time.Sleep(2 * time.Hour) // the deaf store's call comes to its end
			})
		})
	}
}

// That the lease is lost is known also where the context had ended before, by the caller; and what an outer
// operation has lost is not lost to the one inside it.
func TestLostIsOfTheAttemptAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 9 * time.Second})
		inner := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Lease: 9 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		ctx, cancel := context.WithCancel(context.Background())
		_, err := everonce.Do(ctx, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			cancel()
			time.Sleep(10 * time.Second)
			if !a.Lost() || !errors.Is(context.Cause(a.Detached()), everonce.ErrLeaseLost) {
				t.Errorf("lost: %v; %v", a.Lost(), context.Cause(a.Detached()))
			}
			return "", nil
		})
		checkErr(t, err, nil)
		do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			res, err := everonce.Do(ctx, inner, keyOf("y"), func(ctx context.Context, b *everonce.Attempt) (string, error) {
				time.Sleep(10 * time.Second)
				if !a.Lost() || b.Lost() {
					t.Errorf("lost: %v, and inside %v", a.Lost(), b.Lost())
				}
				return everonce.Step(b.Detached(), b, "step", func(context.Context) (string, error) { return "v", nil })
			})
			checkOutcome(t, res, err, everonce.Executed, nil)
			return res.Value, err
		}, everonce.Executed, nil)
	})
}

// A late completion is accepted while its token is current (rule 3).
func TestLateCompletionIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		res, _ := do(t, r, keyOf("x"), sleeps(time.Minute, "late"), everonce.Executed, nil)
		checkEqual(t, "value", res.Value, "late")
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
	})
}

// A late completion is refused once another has the record.
func TestLateCompletionIsRefusedAfterATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 3 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		var wg sync.WaitGroup
		wg.Go(func() {
			res, _ := do(t, r, keyOf("x"), sleeps(time.Minute, "of the first"), everonce.Replayed, nil)
			checkEqual(t, "the first caller's answer", res.Value, "of the second")
		})
		time.Sleep(10 * time.Second)
		res, _ := do(t, r, keyOf("x"), returns("of the second", nil), everonce.Executed, nil)
		checkEqual(t, "Attempt", res.Attempt, 2)
		wg.Wait()
	})
}

// A renewal that finds another attempt ends the work at once, before its own deadline.
func TestRenewalThatFindsAnotherAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		start := time.Now()
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			checkErr(t, everonce.Settle(context.Background(), s, a.Key().RecordID(), everonce.Settlement{
				Verdict: everonce.SettleDone, Encoded: []byte(`"settled"`), Force: true,
			}), nil)
			<-ctx.Done()
			checkEqual(t, "ended at the first beat", time.Since(start), 4*time.Second)
			checkErr(t, context.Cause(ctx), everonce.ErrLeaseLost)
			time.Sleep(time.Minute)
			checkEqual(t, "beats", s.count("Renew"), 1)
			return "", ctx.Err()
		}, everonce.Replayed, nil)
	})
}

// The heartbeat goes on until the completion has returned (rule 5).
func TestHeartbeatUntilTheCompletionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second, StoreTimeout: time.Minute})
		s.on("Complete", 1, deaf(10*time.Second))
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		if n := s.count("Renew"); n != 9 && n != 10 {
			t.Errorf("%d beats in a completion of 10 s with a lease of 3 s", n)
		}
	})
}

// A step's write renews the lease too, in the same write.
func TestStepsMoveTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			start := time.Now()
			time.Sleep(11 * time.Second)
			_, err := everonce.Step(ctx, a, "s", func(context.Context) (int, error) { return 1, nil })
			checkErr(t, err, nil)
			<-ctx.Done()
			checkEqual(t, "lost at", time.Since(start), 23*time.Second)
			return "", everonce.NotDone(ctx.Err())
		}, everonce.Failed, context.Canceled)
	})
}

func TestDetached(t *testing.T) {
	type valueKey struct{}
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		caller, cancel := context.WithCancel(context.WithValue(context.Background(), valueKey{}, "value"))
		var after context.Context
		_, err := everonce.Do(caller, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			d := a.Detached()
			checkEqual(t, "its value", d.Value(valueKey{}), any("value"))
			if from, ok := everonce.AttemptFrom(d); !ok || from != a {
				t.Error("it is not the attempt's")
			}
			cancel()
			<-ctx.Done()
			checkErr(t, d.Err(), nil) // the caller is gone, and what must be finished goes on
			_, err := everonce.Step(d, a, "undo", func(ctx context.Context) (int, error) { return 1, ctx.Err() })
			checkErr(t, err, nil)
			s.on("Renew", 0, refuse(errNet))
			<-d.Done() // it ends with the lease
			checkErr(t, context.Cause(d), everonce.ErrLeaseLost)
			late := a.Detached()
			checkErr(t, context.Cause(late), everonce.ErrLeaseLost)
			return "", everonce.NotDone(ctx.Err())
		})
		checkErr(t, err, context.Canceled)

		s.heal()
		do(t, r, keyOf("asked for too late"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			s.on("Renew", 0, refuse(errNet))
			<-ctx.Done()
			checkErr(t, context.Cause(a.Detached()), everonce.ErrLeaseLost)
			writes := s.count("SaveStep")
			_, err := everonce.Step(ctx, a, "s", stepNever(t)) // nor does it begin anything more
			checkErr(t, err, everonce.ErrLeaseLost)
			checkEqual(t, "writes", s.count("SaveStep"), writes)
			return "", everonce.NotDone(errWork)
		}, everonce.Failed, errWork)

		// It ends with the attempt, whenever it was asked for.
		s.heal()
		var a *everonce.Attempt
		do(t, r, keyOf("y"), func(_ context.Context, attempt *everonce.Attempt) (string, error) {
			a, after = attempt, attempt.Detached()
			return "", nil
		}, everonce.Executed, nil)
		checkErr(t, context.Cause(after), everonce.ErrAttemptEnded)
		do(t, r, keyOf("z"), func(_ context.Context, attempt *everonce.Attempt) (string, error) {
			a = attempt
			return "", nil
		}, everonce.Executed, nil)
		checkErr(t, context.Cause(a.Detached()), everonce.ErrAttemptEnded)
	})
}

// The work's context ends with the attempt, so that goroutines that it left running stop.
func TestWorkContextEndsWithTheAttempt(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	var left context.Context
	do(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		left = ctx
		return "", nil
	}, everonce.Executed, nil)
	checkErr(t, context.Cause(left), everonce.ErrAttemptEnded)
	if !errors.Is(left.Err(), context.Canceled) {
		t.Errorf("Err: %v", left.Err())
	}
}

// Many attempts of one receiver, each with its own lease: every one beats in its own time, and one slow renewal
// delays no other.
func TestAttemptsBeatEachInItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Renew", 1, deaf(30*time.Second)) // of the shortest lease
		start := time.Now()
		var wg sync.WaitGroup
		ids := map[everonce.RecordID]int{}
		for n := range 10 {
			key, lease := keyOf(string(rune('a'+n))), time.Duration(n+1)*6*time.Second
			ids[key.RecordID()] = n
			wg.Go(func() {
				do(t, r, key, sleeps(time.Duration(10-n)*3*time.Second+1500*time.Millisecond, "v"), everonce.Executed, nil, everonce.WithLease(lease))
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // the slow renewal comes to its end
		beats := make([][]time.Duration, 10)
		at := s.times("Renew")
		for i, req := range requests[driver.RenewRequest](&s.faults, "Renew") {
			n := ids[req.ID]
			beats[n] = append(beats[n], at[i].Sub(start))
		}
		for n := range 10 {
			var want []time.Duration
			third, ends := time.Duration(n+1)*2*time.Second, time.Duration(10-n)*3*time.Second+1500*time.Millisecond
			for at := third; at < ends; at += third {
				want = append(want, at)
				if n == 0 {
					break // it hangs in its first, and has lost its lease when that returns
				}
			}
			checkEqual(t, string(rune('a'+n)), beats[n], want)
		}
	})
}

// The lease of work that goes on is renewed though its caller has gone (rule 5), and its local deadline counts from
// before the claim was sent, whose answer may have been slow (rule 2).
func TestLeaseIsOfTheAttemptAndNotOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 9 * time.Second})
		ctx, cancel := context.WithCancel(context.Background())
		res, err := everonce.Do(ctx, r, keyOf("x"), func(_ context.Context, a *everonce.Attempt) (string, error) {
			cancel()
			time.Sleep(time.Minute)
			checkEqual(t, "Lost", a.Lost(), false)
			do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress)
			return "v", nil
		})
		checkOutcome(t, res, err, everonce.Executed, nil)

		s.on("Claim", s.count("Claim")+1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(4 * time.Second)
			return err
		})
		s.on("Renew", 0, hang)
		start := time.Now()
		do(t, r, keyOf("y"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			<-ctx.Done()
			checkEqual(t, "the work's context ended after", time.Since(start), 9*time.Second)
			return "", context.Cause(ctx)
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	})
}
