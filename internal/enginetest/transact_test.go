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
)

type txWork = func(context.Context, *mapTx) (int, error)

// adds is work that adds 30 to a balance, and returns it.
func adds(_ context.Context, tx *mapTx) (int, error) { return tx.Add("balance", 30) }

// addsThen is work that adds 30 and then ends otherwise.
func addsThen(err func(tx *mapTx) error) txWork {
	return func(ctx context.Context, tx *mapTx) (int, error) {
		if _, err := adds(ctx, tx); err != nil {
			return 0, err
		}
		return 0, err(tx)
	}
}

func txNever(t testing.TB) txWork {
	return func(context.Context, *mapTx) (int, error) {
		t.Error("the work ran")
		return 0, errors.New("must not run")
	}
}

// transact calls Transact, checks its outcome, and that it left nothing open.
func transact(t testing.TB, x *everonce.TxReceiver[*mapTx], s *mapStore, key everonce.Key, w txWork, want everonce.Outcome, wantErr error, opts ...everonce.CallOption) (everonce.Result[int], error) {
	t.Helper()
	res, err := everonce.Transact(context.Background(), x, key, w, opts...)
	checkOutcome(t, res, err, want, wantErr)
	s.checkIdle(t)
	return res, err
}

// ways are the two ways through a transaction.
func ways(t *testing.T, test func(t *testing.T, o everonce.Options)) {
	t.Helper()
	for name, optimistic := range map[string]bool{"claim first": false, "optimistic": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, everonce.Options{Optimistic: optimistic}) })
		})
	}
}

func TestTransactExecutesAndReplays(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		rec := &recorder{}
		o.Observer = rec
		x := newTxReceiver(t, s, &o)
		res, _ := transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
		checkEqual(t, "result", res, everonce.Result[int]{Value: 30, Outcome: everonce.Executed, Attempt: 1})
		ev := rec.only(t)
		checkEqual(t, "Kind", ev.Kind, "transact")
		checkEqual(t, "Attempt", ev.Attempt, 1)
		checkEqual(t, "Provisional", ev.Provisional, false)
		begun := s.begun
		for range 3 {
			res, _ = transact(t, x, s, keyOf("x"), txNever(t), everonce.Replayed, nil)
			checkEqual(t, "replay", res, everonce.Result[int]{Value: 30, Outcome: everonce.Replayed})
		}
		checkEqual(t, "balance", s.row("balance"), 30)
		if o.Optimistic {
			checkEqual(t, "transactions for the replays", s.begun, begun)
		}
		transact(t, x, s, keyOf("y"), adds, everonce.Executed, nil)
		checkEqual(t, "balance", s.row("balance"), 60)
		// A guarded receiver on the same store sees the same record.
		got, err := everonce.Lookup[int](context.Background(), newReceiver(t, s, everonce.Refuse, nil), keyOf("x"))
		checkOutcome(t, got, err, everonce.Replayed, nil)
		checkEqual(t, "value", got.Value, 30)
	})
}

func TestTransactRollsBackOnErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err func(*mapTx) error
		is  error
	}{
		"unmarked":              {func(*mapTx) error { return errWork }, errWork},
		"NotDone":               {func(*mapTx) error { return everonce.NotDone(errWork) }, errWork},
		"of the database":       {func(tx *mapTx) error { return tx.Violate() }, errConstraint},
		"classified as NotDone": {func(*mapTx) error { return errClassified }, errClassified},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				o.Classify = notDoneIfClassified
				x := newTxReceiver(t, s, &o)
				res, err := transact(t, x, s, keyOf("x"), addsThen(c.err), everonce.Failed, c.is)
				checkEqual(t, "Attempt", res.Attempt, 1)
				if err != c.is && errors.Unwrap(err) != c.is { //nolint:errorlint // it must be the work's own, or its mark
					t.Errorf("error %v is not the work's own", err)
				}
				checkEqual(t, "balance", s.row("balance"), 0)
				checkEqual(t, "record", s.record(keyOf("x")), driver.Record{})
				transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil) // at once
			})
		})
	}
}

func TestTransactOverAReleasedRecord(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		inAttempt(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), func(context.Context, *everonce.Attempt) {})
		x := newTxReceiver(t, s, &o)
		res, _ := transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
		checkEqual(t, "Attempt", res.Attempt, 2)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
}

func TestTransactWithOtherRecords(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		x := newTxReceiver(t, s, &o)
		diedIn(t, s, keyOf("live"), time.Minute)
		transact(t, x, s, keyOf("live"), txNever(t), everonce.InProgress, everonce.ErrInProgress)
		leaveUnknown(t, r, keyOf("unknown"))
		transact(t, x, s, keyOf("unknown"), txNever(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
		transact(t, x, s, keyOf("f"), adds, everonce.Executed, nil, everonce.FingerprintOf(1))
		transact(t, x, s, keyOf("f"), txNever(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2))
		newer := s.record(keyOf("f"))
		newer.Format = driver.FormatVersion + 1
		s.records[newer.ID] = newer
		_, err := transact(t, x, s, keyOf("f"), txNever(t), everonce.StoreFailed, driver.ErrNewerRecord)
		checkErr(t, err, everonce.ErrStore)
		time.Sleep(everonce.ForWeb().Retention)
		transact(t, x, s, keyOf("y"), adds, everonce.Executed, nil,
			everonce.WithLifetime(everonce.Lifetime{Retention: 1, Remember: time.Hour}), everonce.WithSummary(func(int) []byte { return []byte("sum") }))
		time.Sleep(time.Second)
		_, err = transact(t, x, s, keyOf("y"), txNever(t), everonce.Expired, everonce.ErrExpired)
		checkEqual(t, "Summary", string(asError(t, err).Summary), "sum")
	})
}

// A permanent failure rolls back, and is then saved by a separate transaction.
func TestTransactSavesPermanentFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want everonce.PermanentError
	}{
		"marked":     {fmt.Errorf("x: %w", everonce.Permanent("declined", errWork, []byte("d"))), everonce.PermanentError{Code: "declined", Message: errWork.Error(), Detail: []byte("d")}},
		"classified": {errClassified, everonce.PermanentError{Code: "classified"}},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				o.Classify = func(err error) error {
					if errors.Is(err, errClassified) {
						return everonce.Permanent("classified", nil, nil)
					}
					return nil
				}
				x := newTxReceiver(t, s, &o)
				res, first := transact(t, x, s, keyOf("x"), addsThen(func(*mapTx) error { return c.err }), everonce.Rejected, errAny)
				checkEqual(t, "Attempt", res.Attempt, 1)
				checkEqual(t, "balance", s.row("balance"), 0)
				res, again := transact(t, x, s, keyOf("x"), txNever(t), everonce.Rejected, errAny)
				checkEqual(t, "Attempt of the replay", res.Attempt, 0)
				checkEqual(t, "first", *asPermanent(t, first), c.want)
				checkEqual(t, "replay", *asPermanent(t, again), c.want)
			})
		})
	}
}

// An attempt that holds the key when the failure is to be saved wins, and is replayed.
func TestTransactWhereAnotherWinsBeforeTheFailureIsSaved(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		x, other := newTxReceiver(t, s, &o), newTxReceiver(t, s, nil)
		s.on("Rollback", 1, func(_ context.Context, call func() error) error {
			err := call()
			s.heal()
			res, otherErr := everonce.Transact(context.Background(), other, keyOf("x"), adds)
			checkOutcome(t, res, otherErr, everonce.Executed, nil)
			return err
		})
		res, _ := transact(t, x, s, keyOf("x"), addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, nil) }), everonce.Replayed, nil)
		checkEqual(t, "the winner's value", res.Value, 30)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
	t.Run("and is still at it", func(t *testing.T) {
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		s.on("Rollback", 1, func(_ context.Context, call func() error) error {
			err := call()
			diedIn(t, s, keyOf("x"), time.Minute)
			return err
		})
		transact(t, x, s, keyOf("x"), addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, nil) }), everonce.InProgress, everonce.ErrInProgress)
	})
}

func TestTransactRunsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		work   func(try int32) txWork
		err    error
		runs   int32
	}{
		"deadlock in the work": {"", func(try int32) txWork {
			if try <= 2 {
				return addsThen(func(tx *mapTx) error { return fmt.Errorf("update: %w", tx.Deadlock()) })
			}
			return adds
		}, nil, 3},
		"deadlock at the commit": {"Commit", nil, errDeadlock, 2},
		"busy at the begin":      {"Begin", nil, errDeadlock, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				rec := &recorder{}
				o.Observer = rec
				x := newTxReceiver(t, s, &o)
				if c.method != "" {
					s.on(c.method, 1, refuse(c.err))
				}
				var runs int32
				transact(t, x, s, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) {
					runs++
					if c.work != nil {
						return c.work(runs)(ctx, tx)
					}
					return adds(ctx, tx)
				}, everonce.Executed, nil)
				checkEqual(t, "runs", runs, c.runs)
				checkEqual(t, "balance", s.row("balance"), 30)
				if rec.only(t).Retries == 0 {
					t.Error("the observation has no retry")
				}
			})
		})
	}
}

// A serialization failure that is real: a row changes under the transaction.
func TestTransactConcurrentlyOnOneRow(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		o.TxRetries = 100
		x := newTxReceiver(t, s, &o)
		var wg sync.WaitGroup
		const keys, deliveries = 10, 3
		var executed, others atomic.Int32
		for k := range keys {
			for range deliveries {
				wg.Go(func() {
					res, err := everonce.Transact(context.Background(), x, keyOf(fmt.Sprint(k)), func(ctx context.Context, tx *mapTx) (int, error) {
						if _, err := tx.Get("balance"); err != nil {
							return 0, err
						}
						time.Sleep(time.Millisecond)
						return adds(ctx, tx)
					}, everonce.WithWait(time.Hour))
					checkErr(t, err, nil)
					switch res.Outcome {
					case everonce.Executed:
						executed.Add(1)
					case everonce.Replayed:
						others.Add(1)
					}
				})
			}
		}
		wg.Wait()
		s.checkIdle(t)
		checkEqual(t, "balance", s.row("balance"), keys*30)
		checkEqual(t, "executed", executed.Load(), keys)
		checkEqual(t, "replayed", others.Load(), keys*(deliveries-1))
	})
}

func TestTransactRetriesAreBounded(t *testing.T) {
	for retries, want := range map[int]int{0: 11, 3: 4, -1: 1} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				o.TxRetries = retries
				x := newTxReceiver(t, s, &o)
				runs := 0
				_, err := transact(t, x, s, keyOf("x"), addsThen(func(tx *mapTx) error {
					runs++
					return tx.Deadlock()
				}), everonce.Failed, errDeadlock)
				checkErr(t, err, everonce.ErrStore)
				checkEqual(t, "runs", runs, want)
				checkEqual(t, "balance", s.row("balance"), 0)
			})
		})
	}
}

func TestTransactElidesResults(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		for name, c := range map[string]struct {
			opts  everonce.Options
			store bool
		}{
			"size":     {everonce.Options{MaxResult: 1}, false},
			"encoding": {everonce.Options{Codec: brittle{marshal: panics}}, false},
			"store":    {everonce.Options{}, true},
		} {
			s := newMapStore()
			rec := &recorder{}
			c.opts.Optimistic, c.opts.Observer = o.Optimistic, rec
			x := newTxReceiver(t, s, &c.opts)
			if c.store {
				s.on("Commit", 1, refuse(fmt.Errorf("sql: %w", driver.ErrTooLarge)))
			}
			res, _ := transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
			checkEqual(t, "value", res.Value, 30)
			why := rec.take(t)[0].Elided
			if name != why {
				t.Errorf("Elided %q, want %q", why, name)
			}
			transact(t, x, s, keyOf("x"), txNever(t), everonce.Elided, everonce.ErrResultElided)
			checkEqual(t, "balance", s.row("balance"), 30)
		}
		// A permanent failure loses its detail, for both.
		s := newMapStore()
		x := newTxReceiver(t, s, &o)
		s.on("Commit", 1, refuse(driver.ErrTooLarge))
		_, first := transact(t, x, s, keyOf("x"), addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, []byte("long")) }), everonce.Rejected, errAny)
		_, again := transact(t, x, s, keyOf("x"), txNever(t), everonce.Rejected, errAny)
		checkEqual(t, "first", *asPermanent(t, first), everonce.PermanentError{Code: "declined", Truncated: true})
		checkEqual(t, "replay", *asPermanent(t, again), *asPermanent(t, first))
		// A result that the store cannot keep at all is an error, not a loop.
		s.on("Commit", 0, refuse(driver.ErrTooLarge))
		transact(t, x, s, keyOf("y"), adds, everonce.Failed, driver.ErrTooLarge)
		transact(t, x, s, keyOf("z"), addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, []byte("long")) }), everonce.Failed, driver.ErrTooLarge)
	})
}
