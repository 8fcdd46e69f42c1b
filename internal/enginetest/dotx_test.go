package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// within is a DoTx that adds 30 to the balance and then ends by calling end.
func within(tx *mapTx, end func() error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		n, err := tx.Add("balance", 30)
		if err != nil || end == nil {
			return n, err
		}
		return 0, end()
	}
}

func withinNever(t testing.TB) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		t.Error("the work ran")
		return 0, errors.New("must not run")
	}
}

func fail(err error) func() error { return func() error { return err } }

// doTx calls DoTx and checks its outcome.
func doTx(t testing.TB, x *everonce.TxReceiver[*mapTx], tx *mapTx, key everonce.Key, w func(context.Context) (int, error), want everonce.Outcome, wantErr error, opts ...everonce.CallOption) (everonce.Result[int], error) {
	t.Helper()
	res, err := everonce.DoTx(context.Background(), tx, x, key, w, opts...)
	checkOutcome(t, res, err, want, wantErr)
	return res, err
}

func TestDoTxCommitsWithTheCaller(t *testing.T) {
	s := newMapStore()
	rec := &recorder{}
	x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
	tx := s.begin()
	_, err := tx.Add("other", 1)
	checkErr(t, err, nil)
	res, _ := doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
	checkEqual(t, "result", res, everonce.Result[int]{Value: 30, Outcome: everonce.Executed, Attempt: 1, Provisional: true})
	ev := rec.only(t)
	checkEqual(t, "Provisional", ev.Provisional, true)
	checkEqual(t, "Kind", ev.Kind, "do_tx")
	checkEqual(t, "Attempt", ev.Attempt, 1)

	// Until then no other call has it, and none waits in the store.
	second := s.begin()
	_, err = doTx(t, x, second, keyOf("x"), withinNever(t), everonce.InProgress, everonce.ErrInProgress)
	checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, time.Second)
	checkEqual(t, "Provisional of a refusal", rec.only(t).Provisional, false)
	checkErr(t, second.Commit(), nil)
	checkEqual(t, "balance before the commit", s.row("balance"), 0)

	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 30)
	checkEqual(t, "other", s.row("other"), 1)
	third := s.begin()
	res, _ = doTx(t, x, third, keyOf("x"), withinNever(t), everonce.Replayed, nil)
	checkEqual(t, "replay", res, everonce.Result[int]{Value: 30, Outcome: everonce.Replayed})
	checkEqual(t, "Provisional of a replay", rec.only(t).Provisional, false)
	checkErr(t, third.Commit(), nil)
	s.checkIdle(t)
}

func TestDoTxIsTakenBackByTheCaller(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	tx := s.begin()
	doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
	doTx(t, x, tx, keyOf("p"), within(tx, fail(everonce.Permanent("declined", nil, nil))), everonce.Rejected, errAny)
	tx.Rollback()
	checkEqual(t, "balance", s.row("balance"), 0)
	checkEqual(t, "record", s.record(keyOf("x")), driver.Record{})
	checkEqual(t, "record of a failure", s.record(keyOf("p")), driver.Record{})
	s.checkIdle(t)
}

// An error of the work undoes what the work wrote, and nothing else.
func TestDoTxErrorsUndoTheWorkAlone(t *testing.T) {
	for name, c := range map[string]struct {
		end func(tx *mapTx) func() error
		is  error
	}{
		"unmarked":            {func(*mapTx) func() error { return fail(errWork) }, errWork},
		"NotDone":             {func(*mapTx) func() error { return fail(everonce.NotDone(errWork)) }, errWork},
		"a statement failed":  {func(tx *mapTx) func() error { return tx.Violate }, errConstraint},
		"the failure is kept": {func(tx *mapTx) func() error { return func() error { _ = tx.Violate(); return errWork } }, errWork},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			rec := &recorder{}
			x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
			tx := s.begin()
			_, err := tx.Add("balance", 5)
			checkErr(t, err, nil)
			res, _ := doTx(t, x, tx, keyOf("x"), within(tx, c.end(tx)), everonce.Failed, c.is)
			checkEqual(t, "Attempt", res.Attempt, 1)
			checkEqual(t, "Provisional: nothing remains", res.Provisional, false)
			checkEqual(t, "Observation.Provisional", rec.only(t).Provisional, false)
			// The transaction is alive, and the key is free in it.
			doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
			checkErr(t, tx.Commit(), nil)
			checkEqual(t, "balance", s.row("balance"), 35)
			s.checkIdle(t)
		})
	}
}

// A permanent failure undoes what the work wrote, and is recorded in the caller's transaction.
func TestDoTxRecordsPermanentFailures(t *testing.T) {
	s := newMapStore()
	rec := &recorder{}
	x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
	tx := s.begin()
	failure := everonce.Permanent("declined", errWork, []byte("d"))
	res, first := doTx(t, x, tx, keyOf("x"), within(tx, func() error {
		_ = tx.Violate()
		return fmt.Errorf("x: %w", failure)
	}), everonce.Rejected, errAny)
	checkEqual(t, "Provisional", res.Provisional, true)
	checkEqual(t, "Observation.Provisional", rec.only(t).Provisional, true)
	_, inside := doTx(t, x, tx, keyOf("x"), withinNever(t), everonce.Rejected, errAny)
	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 0)
	_, again := transact(t, x, s, keyOf("x"), txNever(t), everonce.Rejected, errAny)
	want := *asPermanent(t, failure)
	checkEqual(t, "first", *asPermanent(t, first), want)
	checkEqual(t, "in the same transaction", *asPermanent(t, inside), want)
	checkEqual(t, "replay", *asPermanent(t, again), want)
	s.checkIdle(t)
}

func TestDoTxOnADoomedTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(s *mapStore)
		work    func(t *testing.T, tx *mapTx) func(context.Context) (int, error)
		is      error
	}{
		"a deadlock ended it": {
			func(*mapStore) {},
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) { return within(tx, tx.Deadlock) }, errDeadlock,
		},
		"ended, and the failure is permanent": {
			func(*mapStore) {},
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) {
				return within(tx, func() error { _ = tx.Deadlock(); return everonce.Permanent("declined", nil, nil) })
			}, errTxDone,
		},
		"ended, and not noticed": {
			func(*mapStore) {},
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) {
				return within(tx, func() error { _ = tx.Deadlock(); return nil })
			}, errTxDone,
		},
		"it cannot be rolled back to the savepoint": {
			func(s *mapStore) { s.on("RollbackTo", 1, refuse(errNet)) },
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) { return within(tx, fail(errWork)) }, errWork,
		},
		"no savepoint": {
			func(s *mapStore) { s.on("Savepoint", 1, refuse(errNet)) },
			func(t *testing.T, _ *mapTx) func(context.Context) (int, error) { t.Helper(); return withinNever(t) }, errNet,
		},
		"the savepoint is not released": {
			func(s *mapStore) { s.on("ReleaseSavepoint", 1, refuse(errNet)) },
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) { return within(tx, nil) }, errNet,
		},
		"nor after an error": {
			func(s *mapStore) { s.on("ReleaseSavepoint", 1, refuse(errNet)) },
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) { return within(tx, fail(errWork)) }, errNet,
		},
		"nor after a permanent failure": {
			func(s *mapStore) { s.on("ReleaseSavepoint", 1, refuse(errNet)) },
			func(_ *testing.T, tx *mapTx) func(context.Context) (int, error) {
				return within(tx, fail(everonce.Permanent("declined", nil, nil)))
			}, errNet,
		},
		"the claim fails, and nothing works any more": {
			func(s *mapStore) { s.on("tx.Claim", 1, refuse(errNet)); s.on("RollbackTo", 1, refuse(errNet)) },
			func(t *testing.T, _ *mapTx) func(context.Context) (int, error) { t.Helper(); return withinNever(t) }, errNet,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			x := newTxReceiver(t, s, nil)
			c.arrange(s)
			tx := s.begin()
			_, err := doTx(t, x, tx, keyOf("x"), c.work(t, tx), everonce.Failed, everonce.ErrTxDoomed)
			checkErr(t, err, c.is)
			// Every later DoTx refuses, without a statement.
			s.heal()
			calls := len(s.calls)
			doTx(t, x, tx, keyOf("y"), withinNever(t), everonce.Failed, everonce.ErrTxDoomed)
			checkEqual(t, "statements", len(s.calls), calls)
			tx.Rollback()
			// Others go on.
			tx = s.begin()
			doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
			checkErr(t, tx.Commit(), nil)
			checkEqual(t, "balance", s.row("balance"), 30)
		})
	}
}

// A failing store is no doomed transaction, as long as that rolls back to its savepoint.
func TestDoTxWhenTheStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		err    error
		end    func() error
	}{
		"claim":    {"tx.Claim", errNet, nil},
		"complete": {"tx.Complete", errNet, nil},
		"conflict": {"tx.Complete", driver.ErrConflict, nil},
		"record":   {"tx.Record", errNet, fail(everonce.Permanent("declined", nil, nil))},
		"taken":    {"tx.Record", driver.ErrConflict, fail(everonce.Permanent("declined", nil, nil))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			x := newTxReceiver(t, s, nil)
			s.on(c.method, 1, refuse(c.err))
			tx := s.begin()
			_, err := tx.Add("other", 1)
			checkErr(t, err, nil)
			res, err := doTx(t, x, tx, keyOf("x"), within(tx, c.end), everonce.StoreFailed, everonce.ErrStore)
			checkErr(t, err, c.err)
			checkEqual(t, "Provisional", res.Provisional, false)
			checkErr(t, tx.Commit(), nil)
			checkEqual(t, "balance", s.row("balance"), 0)
			checkEqual(t, "other", s.row("other"), 1)
			s.checkIdle(t)
		})
	}
}

func TestDoTxWithOtherRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
		for state, want := range map[string]struct {
			outcome everonce.Outcome
			err     error
		}{
			"live":         {everonce.InProgress, everonce.ErrInProgress},
			"lapsed":       {everonce.Unknown, everonce.ErrOutcomeUnknown},
			"abandoned":    {everonce.Unknown, everonce.ErrOutcomeUnknown},
			"step unknown": {everonce.Unknown, everonce.ErrOutcomeUnknown},
			"tombstone":    {everonce.Expired, everonce.ErrExpired},
		} {
			states[state](t, s, r, keyOf(state))
			tx := s.begin()
			doTx(t, x, tx, keyOf(state), withinNever(t), want.outcome, want.err)
			_, err := tx.Add("alive", 1)
			checkErr(t, err, nil)
			checkErr(t, tx.Commit(), nil)
		}
		states["released"](t, s, r, keyOf("released"))
		tx := s.begin()
		res, _ := doTx(t, x, tx, keyOf("released"), within(tx, nil), everonce.Executed, nil)
		checkEqual(t, "Attempt over a released record", res.Attempt, 2)
		doTx(t, x, tx, keyOf("f"), within(tx, nil), everonce.Executed, nil, everonce.FingerprintOf(1))
		doTx(t, x, tx, keyOf("f"), withinNever(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2))
		checkErr(t, tx.Commit(), nil)
		newer := s.record(keyOf("f"))
		newer.Format = driver.FormatVersion + 1
		s.records[newer.ID] = newer
		tx = s.begin()
		doTx(t, x, tx, keyOf("f"), withinNever(t), everonce.StoreFailed, driver.ErrNewerRecord)
		checkErr(t, tx.Commit(), nil)
	})
}

func TestSeveralDoTxInOneTransaction(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	tx := s.begin()
	for i := range 5 {
		want, err, end := everonce.Executed, error(nil), fail(nil)
		if i%2 == 1 {
			want, err, end = everonce.Failed, errWork, fail(errWork)
		}
		doTx(t, x, tx, keyOf(fmt.Sprint(i)), within(tx, end), want, err)
	}
	res, _ := doTx(t, x, tx, keyOf("0"), withinNever(t), everonce.Replayed, nil) // in one batch twice
	checkEqual(t, "value", res.Value, 0)
	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 3*30)
	s.checkIdle(t)
}

func TestDoTxInDoTx(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	tx := s.begin()
	doTx(t, x, tx, keyOf("outer"), func(ctx context.Context) (int, error) {
		_, err := tx.Add("outer", 1)
		checkErr(t, err, nil)
		inner := func(id string, end func() error) error {
			_, err := everonce.DoTx(ctx, tx, x, keyOf(id), within(tx, end))
			return err
		}
		checkErr(t, inner("kept", nil), nil)
		checkErr(t, inner("undone", fail(errWork)), errWork)
		checkErr(t, inner("aborted", tx.Violate), errConstraint)
		checkErr(t, inner("refused", fail(everonce.Permanent("declined", nil, nil))), errAny)
		return 7, nil
	}, everonce.Executed, nil)
	doTx(t, x, tx, keyOf("second"), func(ctx context.Context) (int, error) {
		_, err := everonce.DoTx(ctx, tx, x, keyOf("gone with it"), within(tx, nil))
		checkErr(t, err, nil)
		return 0, errWork
	}, everonce.Failed, errWork)
	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 30)
	checkEqual(t, "outer", s.row("outer"), 1)
	for id, want := range map[string]driver.State{
		"outer": driver.StateCompleted, "kept": driver.StateCompleted, "refused": driver.StateCompleted,
		"undone": 0, "aborted": 0, "second": 0, "gone with it": 0,
	} {
		checkEqual(t, id, s.record(keyOf(id)).State, want)
	}
	s.checkIdle(t)
}

func TestDoTxUnwinds(t *testing.T) {
	for name, unwind := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			rec := &recorder{}
			x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
			tx := s.begin()
			_, err := tx.Add("other", 1)
			checkErr(t, err, nil)
			done := make(chan any)
			go func() {
				var got any
				defer func() { done <- got }()
				defer func() { got = recover() }()
				_, err := everonce.DoTx(context.Background(), tx, x, keyOf("x"), within(tx, func() error { unwind(); return nil }))
				t.Errorf("DoTx returned, with %v", err)
			}()
			if got := <-done; (got == "boom") != (name == "panic") {
				t.Errorf("recovered %v", got)
			}
			ev := rec.only(t)
			checkEqual(t, "outcome", ev.Outcome, everonce.Failed)
			checkEqual(t, "Provisional", ev.Provisional, false)
			checkErr(t, tx.Commit(), nil) // a caller that recovers may continue
			checkEqual(t, "balance", s.row("balance"), 0)
			checkEqual(t, "other", s.row("other"), 1)
			s.checkIdle(t)
		})
	}
}

func TestDoTxElidesResults(t *testing.T) {
	for name, c := range map[string]struct {
		opts  everonce.Options
		store bool
	}{
		"size":     {everonce.Options{MaxResult: 1}, false},
		"encoding": {everonce.Options{Codec: brittle{marshal: fails}}, false},
		"store":    {everonce.Options{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			rec := &recorder{}
			c.opts.Observer = rec
			x := newTxReceiver(t, s, &c.opts)
			if c.store {
				s.on("tx.Complete", 1, refuse(driver.ErrTooLarge))
			}
			tx := s.begin()
			res, _ := doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
			checkEqual(t, "value", res.Value, 30)
			checkEqual(t, "Elided", rec.only(t).Elided, name)
			checkErr(t, tx.Commit(), nil)
			transact(t, x, s, keyOf("x"), txNever(t), everonce.Elided, everonce.ErrResultElided)
		})
	}
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("tx.Record", 1, refuse(driver.ErrTooLarge))
	tx := s.begin()
	_, first := doTx(t, x, tx, keyOf("x"), within(tx, fail(everonce.Permanent("declined", nil, []byte("long")))), everonce.Rejected, errAny)
	checkErr(t, tx.Commit(), nil)
	_, again := transact(t, x, s, keyOf("x"), txNever(t), everonce.Rejected, errAny)
	checkEqual(t, "first", *asPermanent(t, first), everonce.PermanentError{Code: "declined", Truncated: true})
	checkEqual(t, "replay", *asPermanent(t, again), *asPermanent(t, first))
}

// The caller's end cuts no statement of ours short: that would end the caller's transaction.
func TestDoTxWhoseCallerIsGone(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	for _, method := range []string{"Savepoint", "tx.Claim", "tx.Complete", "ReleaseSavepoint"} {
		s.on(method, 0, func(ctx context.Context, call func() error) error {
			checkErr(t, ctx.Err(), nil)
			return call()
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	tx := s.begin()
	res, err := everonce.DoTx(ctx, tx, x, keyOf("x"), func(ctx context.Context) (int, error) {
		cancel()
		checkErr(t, ctx.Err(), context.Canceled)
		return 5, nil
	})
	checkOutcome(t, res, err, everonce.Executed, nil)
	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "state", s.record(keyOf("x")).State, driver.StateCompleted)
}

func TestDoTxOfAnotherStore(t *testing.T) {
	s, other := newMapStore(), newMapStore()
	tx := other.begin()
	doTx(t, newTxReceiver(t, s, nil), tx, keyOf("x"), withinNever(t), everonce.Invalid, driver.ErrOtherStore)
	tx.Rollback()
}

// With an identity secret the store must have been bound before: to bind it in DoTx could wait for the
// caller's transaction.
func TestDoTxBeforeReady(t *testing.T) {
	s := newMapStore()
	opts := &everonce.Options{IdentitySecret: make([]byte, 16)}
	x := newTxReceiver(t, s, opts)
	tx := s.begin()
	_, err := doTx(t, x, tx, keyOf("x"), withinNever(t), everonce.StoreFailed, driver.ErrIdentity)
	if err == nil {
		t.Fatal("no error")
	}
	checkErr(t, x.Ready(context.Background()), nil)
	doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.Executed, nil)
	tx.Rollback()
	// InTx begins the transaction itself, and so binds before.
	x = newTxReceiver(t, s, opts)
	checkErr(t, x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error {
		_, err := everonce.DoTx(ctx, tx, x, keyOf("y"), within(tx, nil))
		return err
	}), nil)
}

// Where the refused statement has aborted the transaction there is nothing to elide: the work is undone,
// and the error says why.
func TestDoTxWhoseRefusedResultAbortsTheTransaction(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	tx := s.begin()
	s.on("tx.Complete", 1, func(context.Context, func() error) error {
		_ = tx.Violate()
		return driver.ErrTooLarge
	})
	doTx(t, x, tx, keyOf("x"), within(tx, nil), everonce.StoreFailed, driver.ErrTooLarge)
	checkErr(t, tx.Commit(), nil)
	checkEqual(t, "balance", s.row("balance"), 0)
}

func TestDoTxWhoseRefusalCanNotBeLeft(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	diedIn(t, s, keyOf("x"), time.Hour)
	tx := s.begin()
	s.on("ReleaseSavepoint", 0, refuse(errNet))
	doTx(t, x, tx, keyOf("x"), withinNever(t), everonce.Failed, everonce.ErrTxDoomed)
	tx.Rollback()
}
