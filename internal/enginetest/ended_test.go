package enginetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// endsOf are the ways in which work ends the transaction that it was lent. What the engine then sends fails.
var endsOf = map[string]struct {
	end     func(tx *mapTx) error
	balance int
}{
	"committed":   {func(tx *mapTx) error { return tx.Commit() }, 30},
	"rolled back": {func(tx *mapTx) error { tx.Rollback(); return nil }, 0},
}

// ended is what the engine is told by the database of a transaction that is another one by now.
func ended(context.Context, func() error) error { return errTxEnded }

// Work that has ended its transaction is not known to have done anything, and does not run again.
func TestTransactWhoseWorkEndsTheTransaction(t *testing.T) {
	for name, c := range endsOf {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				for what, workErr := range map[string]error{"done": nil, "refused": everonce.Permanent("no", nil, nil), "failed": errWork, "a deadlock after it": errDeadlock} {
					s := newMapStore()
					x := newTxReceiver(t, s, &o)
					s.on("Commit's writes", 1, ended)
					s.on("Rollback", 1, ended)
					runs := 0
					work := func(ctx context.Context, tx *mapTx) (int, error) {
						runs++
						_, err := adds(ctx, tx)
						return 0, errors.Join(err, c.end(tx), workErr)
					}
					for range 2 {
						res, err := everonce.Transact(context.Background(), x, keyOf("x"), work)
						checkOutcome(t, res, err, everonce.Unknown, everonce.ErrOutcomeUnknown)
						checkEqual(t, what+": RetryAfter", asError(t, err).RetryAfter, 0)
					}
					checkEqual(t, what+": runs", runs, 1)
					checkEqual(t, what+": balance", s.row("balance"), c.balance)
					if rec := s.record(keyOf("x")); rec.State == driver.StateCompleted || rec.State == driver.StateReleased || !rec.PurgeAt.IsZero() {
						t.Errorf("%s: the record is %v, until %v; want that it stays unknown", what, rec.State, rec.PurgeAt)
					} else if rec.State == driver.StateAbandoned {
						checkEqual(t, what+": LastError", rec.LastError, "tx_ended")
					}
				}
			})
		})
	}
}

// What cannot be recorded is told; and what another attempt has recorded by then stands.
func TestWhatHasEndedIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, call := range []string{"Claim", "Release"} {
			s := newMapStore()
			x := newTxReceiver(t, s, nil)
			s.on("Commit's writes", 1, ended)
			s.on(call, 0, refuse(errWork))
			res, err := everonce.Transact(context.Background(), x, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) { tx.Rollback(); return 0, nil })
			checkOutcome(t, res, err, everonce.Unknown, everonce.ErrOutcomeUnknown)
			checkErr(t, err, errTxEnded)
			checkErr(t, err, errWork)
			if rec := s.record(keyOf("x")); !rec.PurgeAt.IsZero() { // a claim that lapses stays unknown too
				t.Errorf("after a failed %s the record is %v until %v", call, rec.State, rec.PurgeAt)
			}
		}
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		s.on("Commit's writes", 2, ended)
		res, err := everonce.Transact(context.Background(), x, keyOf("x"), func(_ context.Context, tx *mapTx) (int, error) {
			tx.Rollback()
			_, err := everonce.Transact(context.Background(), x, keyOf("x"), adds)
			return 0, err
		})
		checkOutcome(t, res, err, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "the record of the other", s.record(keyOf("x")).State, driver.StateCompleted)
		checkEqual(t, "releases", s.count("Release"), 0)
	})
}

// What is not recorded would run again: so it is tried as a completion is, also where the store is full, and where an answer was
// lost it is recorded all the same.
func TestWhatHasEndedIsRecordedPersistently(t *testing.T) {
	for call, fault := range map[string]behaviour{"Claim": refuse(everonce.ErrStoreFull), "Release": lose(errNet)} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &recorder{}
				s := newMapStore()
				x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
				s.on("Commit's writes", 1, ended)
				s.on(call, 1, fault)
				_, err := everonce.Transact(context.Background(), x, keyOf("x"), func(_ context.Context, tx *mapTx) (int, error) { tx.Rollback(); return 0, nil })
				checkErr(t, err, everonce.ErrOutcomeUnknown)
				if strings.Contains(err.Error(), "nor is it recorded") {
					t.Errorf("a %s that failed once: %v", call, err)
				}
				checkEqual(t, "the record", s.record(keyOf("x")).State, driver.StateAbandoned)
				checkEqual(t, "retries that are told", rec.events[0].Retries, 1)
			})
		})
	}
}

// It is recorded past the end of the caller's context.
func TestWhatHasEndedIsRecordedPastTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		s.on("Commit's writes", 1, ended)
		for _, call := range []string{"Claim", "Release"} {
			s.on(call, 1, func(ctx context.Context, call func() error) error { return errors.Join(ctx.Err(), call()) })
		}
		ctx, cancel := context.WithCancel(context.Background())
		_, err := everonce.Transact(ctx, x, keyOf("x"), func(_ context.Context, tx *mapTx) (int, error) { tx.Rollback(); cancel(); return 0, nil })
		checkErr(t, err, everonce.ErrOutcomeUnknown)
		if errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the store was called past the end of the context", err)
		}
		checkEqual(t, "the record", s.record(keyOf("x")).State, driver.StateAbandoned)
	})
}

// All of a batch are unknown: its transaction was one.
func TestBatchOfWhichOneEndsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, workErr := range map[string]error{"done": nil, "told by the work": errTxEnded} {
			s := newMapStore()
			x := newTxReceiver(t, s, nil)
			s.on("Commit's writes", 1, ended)
			s.on("tx.Complete", 1, ended)
			s.on("CommitAll", 1, ended)
			runs := 0
			for range 2 {
				all, err := everonce.TransactBatch(context.Background(), x, []everonce.BatchItem{{Key: keyOf("x")}, {Key: keyOf("y")}},
					everonce.EachItem(func(ctx context.Context, tx *mapTx, i int) (int, error) {
						runs++
						if i == 1 {
							tx.Rollback()
							return 0, workErr
						}
						return 0, nil
					}))
				checkErr(t, err, nil)
				for _, one := range all {
					checkOutcome(t, one.Result, one.Err, everonce.Unknown, everonce.ErrOutcomeUnknown)
				}
			}
			checkEqual(t, name+": runs", runs, 2)
		}
	})
}

// A step that has ended its transaction is as one that was begun and not ended.
func TestStepTxThatEndsTheTransaction(t *testing.T) {
	for what, workErr := range map[string]error{"done": nil, "failed": errWork} {
		t.Run(what, func(t *testing.T) {
			s, r, x := newStepTx(t, nil)
			s.on("Commit's writes", 1, ended)
			s.on("Rollback", 1, ended)
			runs := 0
			do := func(p everonce.Policy) (everonce.Result[int], error) {
				return everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
					return everonce.StepTx(ctx, a, x, "charge", func(_ context.Context, tx *mapTx) (int, error) {
						runs++
						tx.Rollback()
						return 0, workErr
					})
				}, everonce.WithPolicy(p))
			}
			for range 2 {
				res, err := do(everonce.Refuse)
				checkOutcome(t, res, err, everonce.Unknown, everonce.ErrOutcomeUnknown)
				checkEqual(t, "Step", asError(t, err).Step, "charge")
			}
			checkEqual(t, "runs", runs, 1)
			step, _ := stepIn(t, s, keyOf("x"), "charge")
			checkEqual(t, "the step", step.State, driver.StepOpen)

			s, r, x = newStepTx(t, nil)
			s.on("Commit's writes", 1, ended)
			s.on("Rollback", 1, ended)
			res, err := do(everonce.Reexecute)
			checkOutcome(t, res, err, everonce.Failed, errTxEnded)
			checkEqual(t, "the record", s.record(keyOf("x")).State, driver.StateReleased)

			s, r, x = newStepTx(t, nil)
			s.on("Commit's writes", 1, ended)
			s.on("Rollback", 1, ended)
			s.on("SaveStep", 1, refuse(everonce.ErrLeaseLost)) // another attempt has the operation: what it records counts
			_, err = inStepTx(t, r, x, s, func(_ context.Context, tx *mapTx) (int, error) { tx.Rollback(); return 0, workErr })
			checkErr(t, err, everonce.ErrLeaseLost)
		})
	}
}

// A panic tells nothing of a transaction: where the work has ended it before, what it did is unknown to the observer too.
func TestDoTxThatEndsTheTransactionAndPanics(t *testing.T) {
	for name, want := range map[string]everonce.Outcome{"ended": everonce.Unknown, "alive": everonce.Failed} {
		rec := &recorder{}
		s := newMapStore()
		x := newTxReceiver(t, s, &everonce.Options{Observer: rec})
		if want == everonce.Unknown {
			s.on("RollbackTo", 1, ended)
		}
		tx := s.begin()
		func() {
			defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
			_, _ = everonce.DoTx(context.Background(), tx, x, keyOf("x"), func(context.Context) (int, error) { panic("boom") })
		}()
		checkEqual(t, name, rec.only(t).Outcome, want)
	}
}

// Without a key there is nothing to be recorded.
func TestInTxWhoseWorkEndsTheTransaction(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("Commit's writes", 1, ended)
	runs := 0
	err := x.InTx(context.Background(), func(_ context.Context, tx *mapTx) error { runs++; tx.Rollback(); return nil })
	checkErr(t, err, everonce.ErrOutcomeUnknown)
	checkErr(t, err, errTxEnded)
	checkEqual(t, "runs", runs, 1)
}

// A DoTx tells that its work has ended the caller's transaction, and so does what is around it, whatever its work makes of that.
func TestDoTxWhoseWorkEndsTheTransaction(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	inner := func(ctx context.Context, tx *mapTx) (everonce.Result[int], error) {
		s.on("tx.Complete", s.count("tx.Complete")+1, ended)
		return everonce.DoTx(ctx, tx, x, keyOf("inner"), func(context.Context) (int, error) { tx.Rollback(); return 1, nil })
	}
	tx := s.begin()
	res, err := inner(context.Background(), tx)
	checkOutcome(t, res, err, everonce.Unknown, everonce.ErrTxDoomed)
	checkErr(t, err, errTxEnded)

	runs := 0
	for range 2 {
		res, err = everonce.Transact(context.Background(), x, keyOf("outer"), func(ctx context.Context, tx *mapTx) (int, error) {
			runs++
			_, err := inner(ctx, tx)
			checkErr(t, err, everonce.ErrTxDoomed)
			return 1, nil
		})
		checkOutcome(t, res, err, everonce.Unknown, everonce.ErrOutcomeUnknown)
	}
	checkEqual(t, "runs", runs, 1)

	tx = s.begin()
	res, err = everonce.DoTx(context.Background(), tx, x, keyOf("around"), func(ctx context.Context) (int, error) {
		_, err := inner(ctx, tx)
		checkErr(t, err, everonce.ErrTxDoomed)
		return 1, nil
	})
	checkOutcome(t, res, err, everonce.Unknown, everonce.ErrTxDoomed)
}

// Work that has ended the transaction and then fails, panics, or makes an error of its own of what a DoTx was told, is not run again.
func TestWhatHasEndedAndFailsDoesNotRunAgain(t *testing.T) {
	const inner = "a DoTx inside"
	for _, how := range []string{"an error", "a deadlock", "a panic", inner} {
		for mode, call := range map[string]func(r *everonce.Receiver, x *everonce.TxReceiver[*mapTx], work func(context.Context, *mapTx) (int, error)) error{
			"Transact": func(_ *everonce.Receiver, x *everonce.TxReceiver[*mapTx], work func(context.Context, *mapTx) (int, error)) error {
				_, err := everonce.Transact(context.Background(), x, keyOf("x"), work)
				return err
			},
			"TransactBatch": func(_ *everonce.Receiver, x *everonce.TxReceiver[*mapTx], work func(context.Context, *mapTx) (int, error)) error {
				all, err := everonce.TransactBatch(context.Background(), x, items("x", "y"), everonce.EachItem(func(ctx context.Context, tx *mapTx, i int) (int, error) {
					if i == 0 {
						return 0, nil
					}
					return work(ctx, tx)
				}))
				return errors.Join(err, all[1].Err)
			},
			"StepTx": func(r *everonce.Receiver, x *everonce.TxReceiver[*mapTx], work func(context.Context, *mapTx) (int, error)) error {
				_, err := everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
					return everonce.StepTx(ctx, a, x, "charge", work)
				}, everonce.EffectsInSteps())
				return err
			},
			"InTx": func(_ *everonce.Receiver, x *everonce.TxReceiver[*mapTx], work func(context.Context, *mapTx) (int, error)) error {
				return x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error { _, err := work(ctx, tx); return err })
			},
		} {
			t.Run(mode+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newMapStore()
					r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
					s.on("tx.Complete", 1, ended)
					if how != inner { // which has begun another transaction: a rollback tells nothing
						s.on("Rollback", 1, ended)
					}
					runs := 0
					once := func() (err error) {
						defer func() {
							if recover() != nil {
								err = everonce.ErrOutcomeUnknown // it is told by the panic
							}
						}()
						return call(r, x, func(ctx context.Context, tx *mapTx) (int, error) {
							runs++
							switch how {
							case "a deadlock":
								tx.Rollback()
								return 0, errDeadlock
							case "a panic":
								tx.Rollback()
								panic("x")
							case inner:
								_, err := everonce.DoTx(ctx, tx, x, keyOf("inner"), func(context.Context) (int, error) { tx.Rollback(); return 0, nil })
								checkErr(t, err, everonce.ErrTxDoomed)
								return 0, errWork
							}
							tx.Rollback()
							return 0, errWork
						})
					}
					checkErr(t, once(), everonce.ErrOutcomeUnknown)
					if mode != "InTx" { // which has no key
						checkErr(t, once(), everonce.ErrOutcomeUnknown)
					}
					checkEqual(t, "runs", runs, 1)
				})
			})
		}
	}
}
