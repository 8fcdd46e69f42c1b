package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// inStepTx runs one step in a transaction, in an attempt that then ends in NotDone, and returns what the
// step came to.
func inStepTx(t testing.TB, r *everonce.Receiver, x *everonce.TxReceiver[*mapTx], s *mapStore, w txWork, opts ...everonce.CallOption) (int, error) {
	t.Helper()
	var v int
	var err error
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		v, err = everonce.StepTx(ctx, a, x, "charge", w, opts...)
	})
	s.checkIdle(t)
	if err != nil && v != 0 {
		t.Errorf("value %v with the error %v", v, err)
	}
	return v, err
}

func newStepTx(t testing.TB, o *everonce.Options) (*mapStore, *everonce.Receiver, *everonce.TxReceiver[*mapTx]) {
	t.Helper()
	s := newMapStore()
	return s, newReceiver(t, s, everonce.Refuse, o), newTxReceiver(t, s, o)
}

func TestStepTxRunsOnceOverAllAttempts(t *testing.T) {
	rec := &recorder{}
	s, r, x := newStepTx(t, &everonce.Options{Observer: rec})
	v, err := inStepTx(t, r, x, s, adds)
	checkErr(t, err, nil)
	checkEqual(t, "value", v, 30)
	step, _ := stepIn(t, s, keyOf("x"), "charge")
	checkEqual(t, "state", step.State, driver.StepDone)
	checkEqual(t, "Attempt", step.Attempt, 1)
	ev := rec.take(t)[0]
	checkEqual(t, "Kind", ev.Kind, "step_tx")
	checkEqual(t, "Outcome", ev.Outcome, everonce.Executed)
	v, err = inStepTx(t, r, x, s, txNever(t))
	checkErr(t, err, nil)
	checkEqual(t, "replayed", v, 30)
	checkEqual(t, "balance", s.row("balance"), 30)
	checkEqual(t, "Outcome", rec.take(t)[0].Outcome, everonce.Replayed)
}

// The parts of one operation: a charge in the database and an e-mail outside of it.
func TestStepTxBesideStep(t *testing.T) {
	s, r, x := newStepTx(t, nil)
	mails := 0
	operation := func(mailErr error) (everonce.Result[string], error) {
		return everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			if _, err := everonce.StepTx(ctx, a, x, "charge", adds); err != nil {
				return "", err
			}
			_, err := everonce.Step(ctx, a, "mail", func(context.Context) (int, error) {
				if mailErr == nil {
					mails++
				}
				return 0, mailErr
			})
			return "done", err
		}, everonce.EffectsInSteps())
	}
	res, err := operation(everonce.NotDone(errWork))
	checkOutcome(t, res, err, everonce.Failed, errWork)
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		res, err = operation(nil)
		checkOutcome(t, res, err, want, nil)
	}
	checkEqual(t, "balance", s.row("balance"), 30)
	checkEqual(t, "mails", mails, 1)
	s.checkIdle(t)
}

// A step that did not commit did not happen: it is never unknown.
func TestStepTxErrorsRollBack(t *testing.T) {
	for name, end := range map[string]func(*mapTx) error{
		"unmarked":        func(*mapTx) error { return errWork },
		"NotDone":         func(*mapTx) error { return everonce.NotDone(errWork) },
		"of the database": func(tx *mapTx) error { return errors.Join(tx.Violate(), errWork) },
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			s, r, x := newStepTx(t, &everonce.Options{Observer: rec})
			_, err := inStepTx(t, r, x, s, addsThen(end))
			checkErr(t, err, errWork)
			checkEqual(t, "Outcome", rec.take(t)[0].Outcome, everonce.Failed)
			if everonce.IsNotDone(err) {
				t.Error("the mark of a step's error speaks of the operation")
			}
			checkEqual(t, "balance", s.row("balance"), 0)
			_, recorded := stepIn(t, s, keyOf("x"), "charge")
			checkEqual(t, "recorded", recorded, false)
			_, err = inStepTx(t, r, x, s, adds)
			checkErr(t, err, nil)
			checkEqual(t, "balance", s.row("balance"), 30)
		})
	}
}

func TestStepTxSavesPermanentFailures(t *testing.T) {
	s, r, x := newStepTx(t, nil)
	_, first := inStepTx(t, r, x, s, addsThen(func(*mapTx) error { return everonce.Permanent("declined", errWork, nil) }))
	checkEqual(t, "balance", s.row("balance"), 0)
	_, again := inStepTx(t, r, x, s, txNever(t))
	checkEqual(t, "failure", *asPermanent(t, first), everonce.PermanentError{Code: "declined", Message: errWork.Error()})
	checkEqual(t, "replay", *asPermanent(t, again), *asPermanent(t, first))
	checkEqual(t, "text", again.Error(), first.Error())
}

func TestStepTxRunsAgain(t *testing.T) {
	for name, arrange := range map[string]func(s *mapStore){
		"begin":  func(s *mapStore) { s.on("Begin", 1, refuse(errDeadlock)) },
		"commit": func(s *mapStore) { s.on("Commit", 1, refuse(errDeadlock)) },
		"work":   func(*mapStore) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &recorder{}
				s, r, x := newStepTx(t, &everonce.Options{Observer: rec})
				arrange(s)
				runs := 0
				_, err := inStepTx(t, r, x, s, func(ctx context.Context, tx *mapTx) (int, error) {
					runs++
					if name == "work" && runs == 1 {
						return 0, fmt.Errorf("update: %w", tx.Deadlock())
					}
					return adds(ctx, tx)
				})
				checkErr(t, err, nil)
				checkEqual(t, "balance", s.row("balance"), 30)
				checkEqual(t, "Retries", rec.take(t)[0].Retries, 1)
			})
		})
	}
	for retries, want := range map[int]int{-1: 1, 2: 3} {
		synctest.Test(t, func(t *testing.T) {
			s, r, _ := newStepTx(t, &everonce.Options{TxRetries: retries})
			x := newTxReceiver(t, s, nil) // whose options a step does not take
			runs := 0
			_, err := inStepTx(t, r, x, s, addsThen(func(tx *mapTx) error { runs++; return tx.Deadlock() }))
			checkErr(t, err, everonce.ErrStore)
			checkErr(t, err, errDeadlock)
			checkEqual(t, "runs", runs, want)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
		})
	}
}

// An error that the work has marked is final, whatever the database said: the work is not run again.
func TestStepTxOfAMarkedDeadlock(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"NotDone":   everonce.NotDone,
		"Permanent": func(err error) error { return everonce.Permanent("busy", err, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s, r, x := newStepTx(t, nil)
			runs := 0
			_, err := inStepTx(t, r, x, s, addsThen(func(tx *mapTx) error { runs++; return mark(tx.Deadlock()) }))
			if err == nil || !strings.Contains(err.Error(), errDeadlock.Error()) {
				t.Errorf("%v", err)
			}
			checkEqual(t, "runs", runs, 1)
			s.checkIdle(t)
		})
	}
}

func TestStepTxWhoseCommitWasLost(t *testing.T) {
	for name, c := range lostCommits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, x := newStepTx(t, nil)
				s.on("Commit", 1, c.commit(s))
				runs := 0
				v, err := inStepTx(t, r, x, s, func(ctx context.Context, tx *mapTx) (int, error) {
					runs++
					return adds(ctx, tx)
				})
				checkErr(t, err, nil)
				checkEqual(t, "value", v, 30)
				checkEqual(t, "runs", runs, c.runs)
				checkEqual(t, "balance", s.row("balance"), 30)
			})
		})
	}
	t.Run("with the store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r, x := newStepTx(t, nil)
			s.on("Commit", 1, func(_ context.Context, call func() error) error {
				_ = call()
				s.on("Begin", 0, refuse(errNet))
				return errCommitLost
			})
			_, err := inStepTx(t, r, x, s, adds)
			checkErr(t, err, everonce.ErrStore)
			checkErr(t, err, errCommitLost)
			checkErr(t, err, errNet)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Unknown)
			s.heal()
			v, err := inStepTx(t, r, x, s, txNever(t)) // the next attempt knows
			checkErr(t, err, nil)
			checkEqual(t, "value", v, 30)
		})
	})
	t.Run("with the record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r, x := newStepTx(t, nil)
			start := time.Now()
			do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				s.on("Commit", 1, func(context.Context, func() error) error {
					s.abort()
					diedIn(t, s, keyOf("x"), time.Hour, func(req *driver.ClaimRequest) { req.Take = driver.TakeForced })
					return errCommitLost
				})
				_, err := everonce.StepTx(ctx, a, x, "charge", adds)
				checkErr(t, err, everonce.ErrLeaseLost)
				return "", err
			}, everonce.LeaseLost, everonce.ErrLeaseLost)
			if d := time.Since(start); d > time.Second {
				t.Errorf("it took %v to notice", d)
			}
			checkEqual(t, "balance", s.row("balance"), 0)
			s.checkIdle(t)
		})
	})
}

// The commit checks the token as its last statement: an attempt that lost its record changes nothing.
func TestStepTxOfALostAttempt(t *testing.T) {
	s, r, x := newStepTx(t, nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx *mapTx) (int, error) {
			diedIn(t, s, keyOf("x"), time.Hour, func(req *driver.ClaimRequest) { req.Take = driver.TakeForced })
			return adds(ctx, tx)
		})
		checkErr(t, err, everonce.ErrLeaseLost)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.LeaseLost)
		return "", err
	}, everonce.LeaseLost, everonce.ErrLeaseLost)
	checkEqual(t, "balance", s.row("balance"), 0)
	s.checkIdle(t)
}

// A step whose context has ended before it begins does not report a failing store.
func TestStepTxAfterTheEndOfItsContext(t *testing.T) {
	rec := &recorder{}
	_, r, x := newStepTx(t, &everonce.Options{Observer: rec})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := everonce.StepTx(ctx, a, x, "charge", txNever(t))
		checkErr(t, err, context.Canceled)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
		checkEqual(t, "it is the store's failure", errors.Is(err, everonce.ErrStore), false)
	})
	checkEqual(t, "observed", rec.take(t)[0].Outcome, everonce.Failed)
}

// The commit renews the lease.
func TestStepTxRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, x := newStepTx(t, nil)
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			start := time.Now()
			time.Sleep(11 * time.Second)
			_, err := everonce.StepTx(ctx, a, x, "charge", adds)
			checkErr(t, err, nil)
			<-ctx.Done()
			checkEqual(t, "lost at", time.Since(start), 23*time.Second)
			return "", everonce.NotDone(ctx.Err())
		}, everonce.Failed, context.Canceled)
	})
}

func TestStepTxElidesResults(t *testing.T) {
	for name, c := range map[string]struct {
		opts  everonce.Options
		store bool
	}{
		"size":     {everonce.Options{MaxResult: 1}, false},
		"encoding": {everonce.Options{Codec: brittle{marshal: fails}}, false},
		"store":    {everonce.Options{TxRetries: -1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			c.opts.Observer = rec
			s, r, x := newStepTx(t, &c.opts)
			if c.store {
				s.on("Commit", 1, refuse(driver.ErrTooLarge))
			}
			v, err := inStepTx(t, r, x, s, adds)
			checkErr(t, err, nil)
			checkEqual(t, "value", v, 30)
			checkEqual(t, "Elided", rec.take(t)[0].Elided, name)
			_, err = inStepTx(t, r, x, s, txNever(t))
			checkErr(t, err, everonce.ErrResultElided)
			checkEqual(t, "balance", s.row("balance"), 30)
		})
	}
	s, r, x := newStepTx(t, nil)
	s.on("Commit", 0, refuse(driver.ErrTooLarge))
	_, err := inStepTx(t, r, x, s, adds)
	checkErr(t, err, driver.ErrTooLarge)
}

func TestStepTxTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _ := newStepTx(t, &everonce.Options{TxTimeout: 5 * time.Second})
		x := newTxReceiver(t, s, &everonce.Options{TxTimeout: time.Hour}) // the operation's counts
		for _, w := range []txWork{
			func(ctx context.Context, _ *mapTx) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			func(ctx context.Context, tx *mapTx) (int, error) {
				time.Sleep(5 * time.Second)
				return adds(ctx, tx)
			},
		} {
			start := time.Now()
			_, err := inStepTx(t, r, x, s, w)
			checkErr(t, err, everonce.ErrTxTooLong)
			checkEqual(t, "it took", time.Since(start), 5*time.Second)
			checkEqual(t, "balance", s.row("balance"), 0)
		}
	})
}

func TestStepTxOfAnotherStore(t *testing.T) {
	s, r, _ := newStepTx(t, nil)
	other := newTxReceiver(t, newMapStore(), nil)
	_, err := inStepTx(t, r, other, s, txNever(t))
	checkErr(t, err, driver.ErrOtherStore)
	if !strings.Contains(err.Error(), "different stores (make both with the same one)") {
		t.Errorf("%q does not say what to do", err)
	}
	do(t, newReceiver(t, memstore.New(nil), everonce.Refuse, nil), keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.StepTx(ctx, a, other, "charge", txNever(t))
		checkErr(t, err, driver.ErrOtherStore)
		return "", nil
	}, everonce.Executed, nil)
}

func TestStepTxWhenTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		for _, do := range []behaviour{refuse(errNet), hang} {
			s.on("Begin", 0, do)
			_, err := inStepTx(t, r, x, s, txNever(t))
			checkErr(t, err, everonce.ErrStore)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.StoreFailed)
		}
		s.heal()
		s.on("Commit", 0, refuse(errNet))
		_, err := inStepTx(t, r, x, s, adds)
		checkErr(t, err, errNet)
		checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
		checkEqual(t, "balance", s.row("balance"), 0)
	})
}

// A Step of the same name, begun outside of transactions and not seen to end, is as unknown as before.
func TestStepTxOverAnOpenStep(t *testing.T) {
	for _, p := range []everonce.Policy{everonce.Refuse, everonce.Reexecute} {
		s := newMapStore()
		r, x := newReceiver(t, s, p, nil), newTxReceiver(t, s, nil)
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "charge", stepReturns("", errWork))
			checkErr(t, err, errWork)
		})
		if p == everonce.Reexecute {
			_, err := inStepTx(t, r, x, s, adds)
			checkErr(t, err, nil)
			checkEqual(t, "balance", s.row("balance"), 30)
			continue
		}
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			_, err := everonce.StepTx(ctx, a, x, "charge", txNever(t))
			checkErr(t, err, everonce.ErrOutcomeUnknown)
			return "", err
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "UnknownStep", s.record(keyOf("x")).UnknownStep, "charge")
	}
}

// A commit that is refused because a late one of the same step came first is that one.
func TestStepTxWhoseLateCommitCameFirst(t *testing.T) {
	for name, codec := range map[string]everonce.Codec{"kept": everonce.JSON(), "elided": brittle{marshal: fails}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, x := newStepTx(t, &everonce.Options{Codec: codec})
				s.on("Commit", 1, lose(everonce.ErrLeaseLost))
				v, err := inStepTx(t, r, x, s, adds)
				checkErr(t, err, nil)
				checkEqual(t, "value", v, 30)
				checkEqual(t, "balance", s.row("balance"), 30)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // the first look for it fails
		s, r, x := newStepTx(t, nil)
		s.on("Commit", 1, lose(errCommitLost))
		s.on("tx.Get", 1, refuse(errNet))
		v, err := inStepTx(t, r, x, s, adds)
		checkErr(t, err, nil)
		checkEqual(t, "value", v, 30)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
}

// A panic of the step's function rolls its transaction back, which would hold its locks else.
func TestStepTxThatPanicsRollsBack(t *testing.T) {
	s, r, x := newStepTx(t, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		defer func() {
			checkEqual(t, "the panic", recover(), any("boom"))
			s.checkIdle(t)
		}()
		_, _ = everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx *mapTx) (int, error) {
			_, err := adds(ctx, tx)
			checkErr(t, err, nil)
			panic("boom")
		})
	})
	checkEqual(t, "balance", s.row("balance"), 0)
}

// A lost commit that was not made is no commit, even if the step is recorded: as not done, by an earlier attempt.
func TestStepTxWhoseCommitWasLostAfterANotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 0, everonce.NotDone(errNet) })
			checkErr(t, err, errNet)
		})
		s.on("Commit", 1, func(context.Context, func() error) error { s.abort(); return errCommitLost })
		_, err := inStepTx(t, r, x, s, adds)
		checkErr(t, err, nil)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
}
