package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

func TestInTxCommitsSeveralOperations(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	ctx := context.Background()
	batch := func(n int) []everonce.Outcome {
		var outcomes []everonce.Outcome
		checkErr(t, x.InTx(ctx, func(ctx context.Context, tx *mapTx) error {
			outcomes = nil
			for i := range n {
				res, err := everonce.DoTx(ctx, tx, x, keyOf(fmt.Sprint(i)), within(tx, nil))
				if err != nil {
					return err
				}
				outcomes = append(outcomes, res.Outcome)
			}
			_, err := tx.Add("offset", n)
			return err
		}), nil)
		s.checkIdle(t)
		return outcomes
	}
	checkEqual(t, "first", batch(2), []everonce.Outcome{everonce.Executed, everonce.Executed})
	checkEqual(t, "second", batch(3), []everonce.Outcome{everonce.Replayed, everonce.Replayed, everonce.Executed})
	checkEqual(t, "balance", s.row("balance"), 90)
	checkEqual(t, "offset", s.row("offset"), 5)
}

func TestInTxRollsBackOnErrors(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	err := x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error {
		_, err := everonce.DoTx(ctx, tx, x, keyOf("x"), within(tx, nil))
		checkErr(t, err, nil)
		return errWork
	})
	if err != errWork { //nolint:errorlint // it must be the work's own
		t.Errorf("error %v", err)
	}
	checkEqual(t, "balance", s.row("balance"), 0)
	checkEqual(t, "record", s.record(keyOf("x")), driver.Record{})
	s.checkIdle(t)
	func() {
		defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
		_ = x.InTx(context.Background(), func(_ context.Context, tx *mapTx) error {
			_, _ = tx.Add("balance", 1)
			panic("boom")
		})
	}()
	checkEqual(t, "balance", s.row("balance"), 0)
	s.checkIdle(t)
}

// A deadlock inside a DoTx dooms that transaction, and InTx runs another.
func TestInTxRunsAgain(t *testing.T) {
	for name, arrange := range map[string]func(s *mapStore){
		"begin":  func(s *mapStore) { s.on("Begin", 1, refuse(errDeadlock)) },
		"commit": func(s *mapStore) { s.on("Commit", 1, refuse(errDeadlock)) },
		"work":   func(*mapStore) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMapStore()
				x := newTxReceiver(t, s, nil)
				arrange(s)
				runs := 0
				checkErr(t, x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error {
					runs++
					var end func() error
					if name == "work" && runs == 1 {
						end = tx.Deadlock
					}
					_, err := everonce.DoTx(ctx, tx, x, keyOf("x"), within(tx, end))
					return err
				}), nil)
				checkEqual(t, "balance", s.row("balance"), 30)
				s.checkIdle(t)
			})
		})
	}
	for retries, want := range map[int]int{-1: 1, 2: 3} {
		synctest.Test(t, func(t *testing.T) {
			s := newMapStore()
			x := newTxReceiver(t, s, &everonce.Options{TxRetries: retries})
			runs := 0
			err := x.InTx(context.Background(), func(_ context.Context, tx *mapTx) error { runs++; return tx.Deadlock() })
			checkErr(t, err, everonce.ErrStore)
			checkErr(t, err, errDeadlock)
			checkEqual(t, "runs", runs, want)
			s.checkIdle(t)
		})
	}
}

func TestInTxEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			commit  behaviour
			want    error
			outcome everonce.Outcome
		}{
			"lost":  {lose(errCommitLost), everonce.ErrOutcomeUnknown, everonce.Unknown},
			"fails": {refuse(errNet), everonce.ErrStore, everonce.Failed},
		} {
			s := newMapStore()
			x := newTxReceiver(t, s, nil)
			s.on("Commit", 0, c.commit)
			err := x.InTx(context.Background(), func(context.Context, *mapTx) error { return nil })
			checkErr(t, err, c.want)
			checkEqual(t, name, asError(t, err).Outcome, c.outcome)
			checkEqual(t, name+": calling again tells", asError(t, err).RetryAfter > 0, c.outcome == everonce.Unknown)
			s.checkIdle(t)
		}
		s := newMapStore()
		x := newTxReceiver(t, s, &everonce.Options{TxTimeout: 5 * time.Second})
		err := x.InTx(context.Background(), func(ctx context.Context, _ *mapTx) error { <-ctx.Done(); return ctx.Err() })
		checkErr(t, err, everonce.ErrTxTooLong)
		err = x.InTx(context.Background(), func(context.Context, *mapTx) error { time.Sleep(time.Hour); return nil })
		checkErr(t, err, everonce.ErrTxTooLong)
		s.on("Begin", 0, hang)
		err = x.InTx(context.Background(), func(context.Context, *mapTx) error { return errors.New("must not run") })
		checkErr(t, err, everonce.ErrStore)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.StoreFailed)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = x.InTx(ctx, func(context.Context, *mapTx) error { return errors.New("must not run") })
		checkErr(t, err, context.Canceled)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
		checkEqual(t, "the caller's end is the store's failure", errors.Is(err, everonce.ErrStore), false)
		s.checkIdle(t)
	})
}

// The commit outlives the caller.
func TestInTxCallerGone(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s.on("Commit", 1, func(ctx context.Context, call func() error) error {
		checkErr(t, ctx.Err(), nil)
		return call()
	})
	checkErr(t, x.InTx(ctx, func(ctx context.Context, tx *mapTx) error {
		cancel()
		checkErr(t, ctx.Err(), context.Canceled)
		_, err := tx.Add("balance", 30)
		return err
	}), nil)
	checkEqual(t, "balance", s.row("balance"), 30)
}
