package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A mark of the work is believed, even on a deadlock: the work does not run again.
func TestMarkedDeadlocksDoNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		runs := 0
		counted := func(end func(tx *mapTx) error) txWork {
			return func(ctx context.Context, tx *mapTx) (int, error) { runs++; return addsThen(end)(ctx, tx) }
		}
		notDone := counted(func(tx *mapTx) error { return everonce.NotDone(tx.Deadlock()) })
		refused := counted(func(tx *mapTx) error { return errors.Join(everonce.Permanent("declined", nil, nil), tx.Deadlock()) })
		transact(t, x, s, keyOf("not done"), notDone, everonce.Failed, errDeadlock)
		transact(t, x, s, keyOf("refused"), refused, everonce.Rejected, errAny)
		checkErr(t, x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error { _, err := notDone(ctx, tx); return err }), errDeadlock)
		inAttempt(t, r, keyOf("step"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.StepTx(ctx, a, x, "not done", notDone)
			checkErr(t, err, errDeadlock)
			_, err = everonce.StepTx(ctx, a, x, "refused", refused)
			checkEqual(t, "code", asPermanent(t, err).Code, "declined")
		})
		checkEqual(t, "runs", runs, 5)
		checkEqual(t, "balance", s.row("balance"), 0)
	})
}

// A begin that took all of its time is a failing store, and is not waited for again, whatever it says in the end.
func TestBeginThatHangsIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		s.on("Begin", 0, func(ctx context.Context, _ func() error) error { <-ctx.Done(); return errDeadlock })
		transact(t, x, s, keyOf("x"), txNever(t), everonce.StoreFailed, everonce.ErrStore)
		checkEqual(t, "begins of Transact", s.count("Begin"), 1)

		results, err := everonce.TransactBatch(context.Background(), x, items("a", "b"), everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 0, errors.New("must not run") }))
		checkErr(t, err, nil)
		for _, res := range results {
			checkOutcome(t, res.Result, res.Err, everonce.StoreFailed, everonce.ErrStore)
		}
		checkEqual(t, "begins of a batch", s.count("Begin"), 2)

		checkErr(t, x.InTx(context.Background(), func(context.Context, *mapTx) error { return errors.New("must not run") }), everonce.ErrStore)
		checkEqual(t, "begins of InTx", s.count("Begin"), 3)

		inAttempt(t, r, keyOf("step"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.StepTx(ctx, a, x, "s", txNever(t))
			checkErr(t, err, everonce.ErrStore)
		})
		checkEqual(t, "begins of a step", s.count("Begin"), 4)
	})
}

// The end of the caller's context is no failure of the store, also where the database is busy meanwhile.
func TestInTxWhoseCallerEndsWhileItBegins(t *testing.T) {
	s := newMapStore()
	ctx, cancel := context.WithCancel(context.Background())
	s.on("Begin", 0, func(context.Context, func() error) error { cancel(); return errDeadlock })
	err := newTxReceiver(t, s, nil).InTx(ctx, func(context.Context, *mapTx) error { return errors.New("must not run") })
	checkErr(t, err, context.Canceled)
	checkEqual(t, "it is the store's failure", errors.Is(err, everonce.ErrStore), false)
}

// A transaction that took too long fails with ErrTxTooLong at its commit too, which is no failure of the store.
func TestCommitThatIsTooLate(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("Commit", 0, refuse(everonce.ErrTxTooLong))
	_, err := everonce.Transact(context.Background(), x, keyOf("x"), adds)
	for _, err := range []error{err, x.InTx(context.Background(), func(context.Context, *mapTx) error { return nil })} {
		checkErr(t, err, everonce.ErrTxTooLong)
		checkEqual(t, "it is the store's failure", errors.Is(err, everonce.ErrStore), false)
	}
}

// A lost commit whose record is a tombstone by now was this one's.
func TestLostCommitBehindItsRetention(t *testing.T) {
	life := everonce.WithLifetime(everonce.Lifetime{Retention: time.Nanosecond, Remember: time.Hour})
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		s.on("Commit", 1, lose(errCommitLost))
		res, _ := transact(t, newTxReceiver(t, s, &o), s, keyOf("x"), adds, everonce.Executed, nil, life)
		checkEqual(t, "value", res.Value, 30)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 1, lose(errCommitLost))
		res, err := everonce.TransactBatch(context.Background(), b.x, items("a", "b"), everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 7, nil }), life)
		checkErr(b, err, nil)
		checkEqual(b, "outcomes", outcomes(res), "[executed executed]")
		checkEqual(b, "value", res[1].Value, 7)
	})
}

// An attempt in a caller's transaction has what every attempt has: a context that does not end with the caller, and
// a nonce.
func TestAttemptOfDoTx(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	tx := s.begin()
	type valueKey struct{}
	for _, id := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), valueKey{}, "value"))
		defer cancel()
		_, err := everonce.DoTx(ctx, tx, x, keyOf(id), func(ctx context.Context) (int, error) {
			a, ok := everonce.AttemptFrom(ctx)
			if !ok {
				t.Fatal("no attempt")
			}
			cancel()
			checkErr(t, a.Detached().Err(), nil)
			checkEqual(t, "its value", a.Detached().Value(valueKey{}), any("value"))
			return within(tx, nil)(ctx)
		})
		checkErr(t, err, nil)
	}
	checkErr(t, tx.Commit(), nil)
	var after context.Context
	_, err := transact(t, x, s, keyOf("c"), func(ctx context.Context, _ *mapTx) (int, error) {
		a, _ := everonce.AttemptFrom(ctx) //nolint:errcheck // it is one
		after = a.Detached()
		return 1, nil
	}, everonce.Executed, nil)
	checkErr(t, err, nil)
	checkErr(t, after.Err(), nil)
	if a, b := s.record(keyOf("a")).Nonce, s.record(keyOf("b")).Nonce; a == b || a == (driver.Nonce{}) {
		t.Errorf("nonces %v and %v", a, b)
	}
}

// The observation says how long a transaction's caller waited.
func TestObserverGetsTheWaitOfATransact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		rec := &recorder{}
		x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
		diedIn(t, s, keyOf("x"), time.Hour)
		transact(t, x, s, keyOf("x"), txNever(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(3*time.Second))
		checkEqual(t, "Waited", rec.only(t).Waited, 3*time.Second)
	})
}

// The result has the attempt's number if the work was called, even if its transaction was rolled back and the next
// cannot begin.
func TestTransactTellsOfAnAttemptBeforeTheStoreFailed(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		for name, end := range map[string]func(tx *mapTx) error{
			"a deadlock": func(tx *mapTx) error { return tx.Deadlock() },
			"a refusal":  func(*mapTx) error { return everonce.Permanent("declined", nil, nil) },
		} {
			s := newMapStore()
			s.on("Begin", 2, refuse(errNet))
			res, _ := transact(t, newTxReceiver(t, s, &o), s, keyOf("x"), addsThen(end), everonce.StoreFailed, errNet)
			checkEqual(t, name+": Attempt", res.Attempt, 1)
			checkEqual(t, name+": balance", s.row("balance"), 0)
		}
		s := newMapStore()
		s.on("Begin", 1, refuse(errNet))
		res, _ := transact(t, newTxReceiver(t, s, &o), s, keyOf("x"), txNever(t), everonce.StoreFailed, errNet)
		checkEqual(t, "before any: Attempt", res.Attempt, 0)
	})
}
