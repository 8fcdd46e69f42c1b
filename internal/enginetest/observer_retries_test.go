package enginetest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Observation.Retries counts what was made again: not what was made once, and not what was given up before it was
// made again.
func TestRetriesCountRepeatedCalls(t *testing.T) {
	for _, c := range []struct {
		method string
		nth    int
		err    error
		calls  int
	}{
		{"Claim", 1, errNet, 2},
		{"Claim", 0, errNet, 3},
		{"Claim", 0, everonce.ErrSchema, 1},
		{"Complete", 1, errNet, 2},
		{"Complete", 0, driver.ErrCorruptRecord, 1},
		{"Complete", 0, errNet, 0},
	} {
		t.Run(fmt.Sprint(c.method, c.nth, c.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, rec := newFaultStore(), &recorder{}
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec, CompletionTimeout: time.Second})
				s.on(c.method, c.nth, refuse(c.err))
				_, _ = everonce.Do(t.Context(), r, keyOf("x"), returns("v", nil)) //nolint:errcheck // the event is looked at
				if c.calls == 0 {
					c.calls = s.count(c.method)
				}
				checkEqual(t, "calls", s.count(c.method), c.calls)
				checkEqual(t, "Retries", rec.only(t).Retries, c.calls-1)
			})
		})
	}
}

// Waiting is no retry, and does not forget those there were.
func TestRetriesOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rec := newFaultStore(), &recorder{}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
		diedIn(t, s, keyOf("x"), time.Minute)
		n := s.count("Claim")
		s.on("Claim", n+1, refuse(errNet))
		s.on("Claim", n+2, refuse(errNet))
		s.on("Claim", n+5, refuse(errNet))
		do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(5*time.Second))
		checkEqual(t, "Retries", rec.only(t).Retries, 3)
	})
}

// So do transactions, of which TxRetries tells how many there may be.
func TestRetriesAreTransactionsMadeAgain(t *testing.T) {
	for txRetries, want := range map[int]int{-1: 0, 2: 2} {
		ways(t, func(t *testing.T, o everonce.Options) {
			s, rec := newMapStore(), &recorder{}
			o.Observer, o.TxRetries = rec, txRetries
			x := newTxReceiver(t, s, &o)
			deadlocks := addsThen(func(tx *mapTx) error { return tx.Deadlock() })
			transact(t, x, s, keyOf("x"), deadlocks, everonce.Failed, errDeadlock)
			checkEqual(t, "Retries of Transact", rec.only(t).Retries, want)

			r := newReceiver(t, s, everonce.Refuse, &o)
			_, err := inStepTx(t, r, x, s, deadlocks)
			checkErr(t, err, errDeadlock)
			checkEqual(t, "Retries of StepTx", rec.take(t)[0].Retries, want)

			runs := 0
			_, err = everonce.TransactBatch(t.Context(), x, items("a", "b"), func(_ context.Context, tx *mapTx, todo []int) ([]int, error) {
				runs++
				if len(todo) == 2 {
					return nil, tx.Deadlock()
				}
				return make([]int, 1), nil
			})
			checkErr(t, err, nil)
			checkEqual(t, "runs of the batch", runs, want+3) // then each alone
			for _, ev := range rec.take(t) {
				checkEqual(t, "Retries of an item", ev.Retries, want)
			}
		})
	}
}

// The look of the optimistic way is a store call too.
func TestRetriesOfALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, rec := newMapStore(), &recorder{}
		x := newTxReceiver(t, s, &everonce.Options{Observer: rec, Optimistic: true})
		s.on("Get", 1, refuse(errNet))
		transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
		checkEqual(t, "Retries", rec.only(t).Retries, 1)
	})
}
