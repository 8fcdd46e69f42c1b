package enginetest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

func TestTransactTooLong(t *testing.T) {
	for name, w := range map[string]txWork{
		"the work looks at its context": func(ctx context.Context, _ *mapTx) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		},
		"the work fails in the database": func(ctx context.Context, tx *mapTx) (int, error) {
			time.Sleep(time.Hour)
			return adds(ctx, tx)
		},
		"the commit finds it": func(ctx context.Context, tx *mapTx) (int, error) {
			defer time.Sleep(time.Hour)
			return adds(ctx, tx)
		},
		"the failure comes late": func(ctx context.Context, tx *mapTx) (int, error) {
			time.Sleep(time.Hour)
			return 0, errWork
		},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				o.TxTimeout = 5 * time.Second
				x := newTxReceiver(t, s, &o)
				start := time.Now()
				_, err := transact(t, x, s, keyOf("x"), w, everonce.Failed, everonce.ErrTxTooLong)
				if strings.HasPrefix(name, "the work looks") {
					checkEqual(t, "it took", time.Since(start), 5*time.Second)
				}
				if errors.Is(err, everonce.ErrOutcomeUnknown) {
					t.Errorf("%v", err)
				}
				checkEqual(t, "balance", s.row("balance"), 0)
			})
		})
	}
}

func TestTransactCallerGone(t *testing.T) {
	gone := errors.New("the client went away")
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		x := newTxReceiver(t, s, &o)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(gone)
		res, err := everonce.Transact(ctx, x, keyOf("before"), txNever(t))
		checkOutcome(t, res, err, everonce.Failed, gone)
		checkEqual(t, "transactions", s.begun, 0)

		// In the work: only the work's context ends; a result is committed (rule 6).
		ctx, cancel = context.WithCancelCause(context.Background())
		res, err = everonce.Transact(ctx, x, keyOf("in"), func(ctx context.Context, tx *mapTx) (int, error) {
			cancel(gone)
			<-ctx.Done()
			checkErr(t, context.Cause(ctx), gone)
			return adds(ctx, tx)
		})
		checkOutcome(t, res, err, everonce.Executed, nil)
		checkEqual(t, "balance", s.row("balance"), 30)

		ctx, cancel = context.WithCancelCause(context.Background())
		res, err = everonce.Transact(ctx, x, keyOf("obeys"), func(ctx context.Context, _ *mapTx) (int, error) {
			cancel(gone)
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		checkOutcome(t, res, err, everonce.Failed, gone)

		// Between two tries.
		ctx, cancel = context.WithCancelCause(context.Background())
		runs := 0
		res, err = everonce.Transact(ctx, x, keyOf("between"), addsThen(func(tx *mapTx) error {
			runs++
			cancel(gone)
			return tx.Deadlock()
		}))
		checkOutcome(t, res, err, everonce.Failed, errDeadlock)
		checkEqual(t, "runs", runs, 1)

		// In the begin.
		s.on("Begin", 0, hang)
		s.on("Get", 0, hang)
		late, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		res, err = everonce.Transact(late, x, keyOf("begin"), txNever(t))
		checkOutcome(t, res, err, everonce.Failed, context.DeadlineExceeded)
		s.checkIdle(t)
	})
}

func TestTransactUnwinds(t *testing.T) {
	for name, unwind := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				rec := &recorder{}
				o.Observer = rec
				x := newTxReceiver(t, s, &o)
				done := make(chan any)
				go func() {
					var got any
					defer func() { done <- got }()
					defer func() { got = recover() }()
					_, err := everonce.Transact(context.Background(), x, keyOf("x"), addsThen(func(*mapTx) error {
						unwind()
						return nil
					}))
					t.Errorf("Transact returned, with %v", err)
				}()
				if got := <-done; (got == "boom") != (name == "panic") {
					t.Errorf("recovered %v", got)
				}
				s.checkIdle(t)
				checkEqual(t, "balance", s.row("balance"), 0)
				ev := rec.only(t)
				checkEqual(t, "outcome", ev.Outcome, everonce.Failed)
				checkErr(t, ev.Err, errAny)
				transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
			})
		})
	}
}

// A duplicate waits outside of the store: it holds no transaction while it waits (rule 15).
func TestTransactWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // of two optimistic ones at once both would work
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			res, err := everonce.Transact(context.Background(), x, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) {
				close(started)
				time.Sleep(10 * time.Second)
				return adds(ctx, tx)
			})
			checkOutcome(t, res, err, everonce.Executed, nil)
		})
		<-started
		start := time.Now()
		wg.Go(func() {
			time.Sleep(5 * time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			checkEqual(t, "open transactions while one waits", len(s.open), 1)
		})
		res, err := everonce.Transact(context.Background(), x, keyOf("x"), txNever(t), everonce.WithWait(time.Minute))
		checkOutcome(t, res, err, everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, 30)
		checkEqual(t, "woken at", time.Since(start), 10*time.Second)
		_, err = everonce.Transact(context.Background(), x, keyOf("x"), txNever(t))
		checkErr(t, err, nil)
		wg.Wait()

		diedIn(t, s, keyOf("dead"), time.Hour)
		start = time.Now()
		transact(t, x, s, keyOf("dead"), txNever(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(3*time.Second))
		checkEqual(t, "it waited for", time.Since(start), 3*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		res, err = everonce.Transact(ctx, x, keyOf("dead"), txNever(t), everonce.WithWait(time.Minute))
		checkOutcome(t, res, err, everonce.InProgress, context.DeadlineExceeded)
	})
}

// A refusal for good is saved although the caller has gone meanwhile, after a failure of the store too (rule 6).
func TestTransactSavesThePermanentFailureOfACallerThatIsGone(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		x := newTxReceiver(t, s, &o)
		ctx, cancel := context.WithCancel(context.Background())
		res, err := everonce.Transact(ctx, x, keyOf("x"), func(context.Context, *mapTx) (int, error) {
			cancel()
			s.on("Begin", 1, refuse(errDeadlock))
			return 0, everonce.Permanent("declined", nil, nil)
		})
		checkOutcome(t, res, err, everonce.Rejected, errAny)
		transact(t, x, s, keyOf("x"), txNever(t), everonce.Rejected, errAny)
		s.checkIdle(t)
	})
}
