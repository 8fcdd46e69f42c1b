package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// Many callers of few keys at once, in two processes: work that is slow, fails, panics, leaves its goroutine, and
// leaves others that still look at its context behind it; callers that go; renewals and words of the store that are
// lost. No two attempts of a key overlap while leases hold, everybody is answered in time, and nothing is left: the
// bubble finds goroutines and timers, and newReceiver the rest.
func TestManyCallersAtOnceLeaveNothing(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { manyCallers(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func manyCallers(t *testing.T, dice *rand.Rand) {
	const limit = 30 * time.Second
	s := newWordStore()
	s.silent = dice.IntN(4) == 0
	for range 30 { // few enough that no lease is lost
		s.on("Renew", 1+dice.IntN(200)*3, refuse(errNet))
	}
	rec := &recorder{}
	receivers := make([]*everonce.Receiver, 2)
	for i := range receivers {
		receivers[i] = newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 3 * time.Second, Observer: rec})
	}
	var running [4]atomic.Int32
	var all, strays sync.WaitGroup
	for range 200 {
		key, r, end, slow := dice.IntN(len(running)), receivers[dice.IntN(2)], dice.IntN(8), time.Duration(dice.IntN(8000))*time.Millisecond
		begins, gone := time.Duration(dice.IntN(60_000))*time.Millisecond, time.Duration(1+dice.IntN(40_000))*time.Millisecond
		all.Go(func() {
			time.Sleep(begins)
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			start := time.Now()
			var inside context.Context
			defer func() {
				_ = recover()
				if inside != nil && inside.Err() == nil {
					t.Error("the context of an attempt that is over has not ended")
				}
				if took := time.Since(start); took > limit+10*time.Second {
					t.Errorf("an answer took %v", took)
				}
			}()
			_, err := everonce.Do(ctx, r, keyOf(fmt.Sprint(key)), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				if running[key].Add(1) > 1 {
					t.Error("two attempts at once")
				}
				defer running[key].Add(-1)
				inside = ctx
				detached := a.Detached()
				strays.Go(func() { <-ctx.Done() })
				strays.Go(func() { <-detached.Done(); checkErr(t, context.Cause(detached), everonce.ErrAttemptEnded) })
				stop := context.AfterFunc(ctx, func() { _ = a.Lost() })
				defer stop()
				if end < 4 {
					_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) { time.Sleep(slow / 2); return "", nil })
					if err != nil {
						return "", err
					}
				}
				time.Sleep(slow)
				switch end {
				case 0:
					panic("x")
				case 1:
					runtime.Goexit()
				}
				return "", errWork // so that the key is never done
			}, everonce.WithWait(limit))
			if err == nil {
				t.Error("it is done")
			}
			var e *everonce.Error
			if errors.As(err, &e) && e.Outcome != everonce.InProgress && e.Outcome != everonce.Failed {
				t.Error(err)
			}
		})
	}
	all.Wait()
	strays.Wait() // all contexts have ended
	rec.take(t)
	checkEqual(t, "watches left", s.open, 0)
}
