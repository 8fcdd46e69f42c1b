package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

var errGone = errors.New("the client has hung up")

// If the caller's context ends before the work was called, or while the store answers the call before it, nothing
// runs, and that is not the store's failure. A waiting caller that asks again gets the same error as if it had not
// asked.
func TestNothingIsBegunForACallerThatIsGone(t *testing.T) {
	type world struct {
		s *mapStore
		r *everonce.Receiver
		x *everonce.TxReceiver[*mapTx]
	}
	add := func(w world) func(context.Context) (int, error) {
		return func(context.Context) (int, error) {
			tx := w.s.begin()
			n, err := tx.Add("balance", 30)
			return n, errors.Join(err, tx.Commit())
		}
	}
	// in runs a step of an attempt whose caller is present, and then releases the key.
	in := func(w world, step func(a *everonce.Attempt) (int, error)) (n int, err error) {
		_, _ = everonce.Do(context.Background(), w.r, keyOf("x"), func(_ context.Context, a *everonce.Attempt) (string, error) {
			n, err = step(a)
			return "", everonce.NotDone(errWork)
		})
		return n, err
	}
	for name, c := range map[string]struct {
		before string // the call that comes before the work
		call   func(ctx context.Context, w world) (int, error)
	}{
		"Do": {"Claim", func(ctx context.Context, w world) (int, error) {
			res, err := everonce.Do(ctx, w.r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (int, error) { return add(w)(ctx) })
			return res.Value, err
		}},
		"Transact": {"Begin", func(ctx context.Context, w world) (int, error) {
			res, err := everonce.Transact(ctx, w.x, keyOf("x"), adds)
			return res.Value, err
		}},
		"Transact, optimistic": {"Begin", func(ctx context.Context, w world) (int, error) {
			res, err := everonce.Transact(ctx, w.x, keyOf("x"), adds, everonce.Optimistic())
			return res.Value, err
		}},
		"TransactBatch": {"Begin", func(ctx context.Context, w world) (int, error) {
			items := []everonce.BatchItem{{Key: keyOf("x")}, {Key: keyOf("y")}}
			res, err := everonce.TransactBatch(ctx, w.x, items, func(ctx context.Context, tx *mapTx, todo []int) ([]int, error) {
				n, err := adds(ctx, tx)
				return make([]int, len(todo), n), err
			})
			if err != nil {
				return 0, err
			}
			return w.s.row("balance"), res[0].Err
		}},
		"InTx": {"Begin", func(ctx context.Context, w world) (n int, err error) {
			err = w.x.InTx(ctx, func(ctx context.Context, tx *mapTx) error { n, err = adds(ctx, tx); return err })
			return n, err
		}},
		"DoTx": {"tx.Claim", func(ctx context.Context, w world) (int, error) {
			tx := w.s.begin()
			res, err := everonce.DoTx(ctx, tx, w.x, keyOf("x"), within(tx, nil))
			return res.Value, errors.Join(err, tx.Commit()) // it is alive
		}},
		"Step": {"SaveStep", func(ctx context.Context, w world) (int, error) {
			return in(w, func(a *everonce.Attempt) (int, error) { return everonce.Step(ctx, a, "s", add(w)) })
		}},
		"StepTx": {"Begin", func(ctx context.Context, w world) (int, error) {
			return in(w, func(a *everonce.Attempt) (int, error) { return everonce.StepTx(ctx, a, w.x, "s", adds) })
		}},
	} {
		for when, late := range map[string]bool{"over": false, "over with the answer": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				s := newMapStore()
				o := &everonce.Options{EffectsInSteps: true}
				w := world{s, newReceiver(t, s, everonce.Refuse, o), newTxReceiver(t, s, nil)}
				checkErr(t, w.r.Ready(t.Context()), nil)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if late {
					s.on(c.before, 1, func(_ context.Context, call func() error) error { err := call(); cancel(errGone); return err })
				} else {
					cancel(errGone)
				}
				_, err := c.call(ctx, w)
				checkErr(t, err, errGone)
				checkEqual(t, "the store's failure", errors.Is(err, everonce.ErrStore), false)
				checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
				checkEqual(t, "balance", s.row("balance"), 0)
				if late {
					checkEqual(t, "calls of "+c.before, s.count(c.before) > 0, true)
				}
				s.heal()
				n, err := c.call(context.Background(), w)
				checkErr(t, err, nil)
				checkEqual(t, "value", n, 30)
				checkEqual(t, "balance", s.row("balance"), 30)
				s.checkIdle(t)
			})
		}
	}
}

// Nor is it the store's failure where the database was busy, and the caller went before the next try.
func TestACallerThatGoesBetweenTwoTries(t *testing.T) {
	work := func(context.Context, *mapTx) (int, error) { t.Error("the work ran"); return 0, nil }
	for name, call := range map[string]func(ctx context.Context, s *mapStore, x *everonce.TxReceiver[*mapTx]) error{
		"Transact": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx]) error {
			_, err := everonce.Transact(ctx, x, keyOf("x"), work)
			return err
		},
		"TransactBatch": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx]) error {
			res, err := everonce.TransactBatch(ctx, x, []everonce.BatchItem{{Key: keyOf("x")}, {Key: keyOf("y")}},
				everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (int, error) { return work(ctx, tx) }))
			checkErr(t, err, nil)
			return res[0].Err
		},
		"InTx": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx]) error {
			return x.InTx(ctx, func(ctx context.Context, tx *mapTx) error { _, err := work(ctx, tx); return err })
		},
		"StepTx": func(ctx context.Context, s *mapStore, x *everonce.TxReceiver[*mapTx]) error {
			var err error
			inAttempt(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), func(_ context.Context, a *everonce.Attempt) {
				_, err = everonce.StepTx(ctx, a, x, "s", work)
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMapStore()
				ctx, cancel := context.WithCancelCause(context.Background())
				s.on("Begin", 0, func(context.Context, func() error) error {
					time.AfterFunc(time.Microsecond, func() { cancel(errGone) }) // in the pause
					return fmt.Errorf("%w: busy: %w", everonce.ErrStore, errDeadlock)
				})
				err := call(ctx, s, newTxReceiver(t, s, nil))
				checkErr(t, err, errGone)
				checkErr(t, err, errDeadlock)
				checkEqual(t, "the store's failure", errors.Is(err, everonce.ErrStore), false)
				checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
				checkEqual(t, "begun", s.count("Begin"), 1)
			})
		})
	}
}

// A caller that is gone still gets the saved result of a finished step: nothing is begun for it.
func TestAFinishedStepIsReturnedToACallerThatIsGone(t *testing.T) {
	s := newMapStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "s", stepReturns("sent", nil))
		checkErr(t, err, nil)
	})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	inAttempt(t, r, keyOf("x"), func(_ context.Context, a *everonce.Attempt) {
		v, err := everonce.Step(gone, a, "s", stepNever(t))
		checkErr(t, err, nil)
		checkEqual(t, "value", v, "sent")
	})
}

// A step that an earlier attempt left open stays open if this attempt could not begin it: it may have happened, and
// the next policy may be another.
func TestAnEarlierStepStaysOpen(t *testing.T) {
	for name, begin := range map[string]behaviour{"not written": refuse(errNet), "its answer lost": lose(errNet)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Reexecute, nil)
				mail := func(do stepWork, p everonce.Policy) (v string, err error) {
					_, _ = everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
						v, err = everonce.Step(ctx, a, "mail", do, everonce.WithPolicy(p))
						return "", errWork
					})
					return v, err
				}
				_, err := mail(stepReturns("", errWork), everonce.Reexecute)
				checkErr(t, err, errWork)
				s.on("SaveStep", 0, func(ctx context.Context, call func() error) error {
					if reqs := requests[driver.SaveStepRequest](&s.faults, "SaveStep"); reqs[len(reqs)-1].Step.State == driver.StepOpen {
						return begin(ctx, call)
					}
					return call()
				})
				_, err = mail(stepNever(t), everonce.Reexecute)
				checkErr(t, err, everonce.ErrStore)
				s.heal()
				_, err = mail(stepNever(t), everonce.Refuse)
				checkErr(t, err, everonce.ErrOutcomeUnknown)
			})
		})
	}
}

// Nor is a settlement, which leaves the operation unknown.
func TestSettleForACallerThatIsGone(t *testing.T) {
	for when, c := range map[string]struct {
		method string // the call with whose answer the context is over; none: before all of them
		calls  bool   // that call is made: its answer comes, or not
	}{
		"before": {}, "over with the look": {"Get", true}, "the look is cut short": {"Get", false}, "over with the claim": {"Claim", true}, "the claim is cut short": {"Claim", false}, "the write is cut short": {"Complete", false},
	} {
		for name, settle := range map[string]func(context.Context, *mapStore, *everonce.Receiver, everonce.Settlement) error{
			"with a receiver": func(ctx context.Context, _ *mapStore, r *everonce.Receiver, v everonce.Settlement) error {
				return r.Settle(ctx, keyOf("x"), v)
			},
			"without": func(ctx context.Context, s *mapStore, _ *everonce.Receiver, v everonce.Settlement) error {
				return everonce.Settle(ctx, s, keyOf("x").RecordID(), v)
			},
		} {
			t.Run(when+", "+name, func(t *testing.T) {
				s := newMapStore()
				rec := &recorder{}
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
				leaveUnknown(t, r, keyOf("x"))
				rec.take(t)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if c.method == "" {
					cancel(errGone)
				} else {
					s.on(c.method, s.count(c.method)+1, func(ctx context.Context, call func() error) error {
						var err error
						if c.calls {
							err = call()
						}
						if cancel(errGone); !c.calls {
							err = cutShort(ctx)
						}
						return err
					})
				}
				claims := s.count("Claim")
				settlement := everonce.Settlement{Verdict: everonce.SettleDone, Token: s.record(keyOf("x")).Token}
				err := settle(ctx, s, r, settlement)
				checkErr(t, err, errGone)
				checkEqual(t, "the store's failure", errors.Is(err, everonce.ErrStore), false)
				checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Failed)
				if name == "with a receiver" {
					checkEqual(t, "outcome that is observed", rec.only(t).Outcome, everonce.Failed)
				}
				checkEqual(t, "state", s.record(keyOf("x")).State, driver.StateAbandoned)
				if c.method == "" || c.method == "Get" {
					checkEqual(t, "claims", s.count("Claim"), claims)
				}
				s.heal()
				settlement.Token = 0
				checkErr(t, settle(context.Background(), s, r, settlement), nil)
				checkEqual(t, "state", s.record(keyOf("x")).State, driver.StateCompleted)
			})
		}
	}
}

// A caller whose context ends during a wait gets its cause, even if it was the one that was asking for all.
func TestACallerThatLeavesWhileItAsksHasWaited(t *testing.T) {
	for name, do := range map[string]behaviour{
		"no answer came":  func(ctx context.Context, _ func() error) error { <-ctx.Done(); return cutShort(ctx) },
		"it was answered": func(ctx context.Context, call func() error) error { err := call(); <-ctx.Done(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				diedIn(t, s, keyOf("x"), time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				s.on("Claim", 3, do)
				res, err := everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithWait(time.Hour))
				checkOutcome(t, res, err, everonce.InProgress, everonce.ErrInProgress)
				checkErr(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// A caller that has waited and then got the record no longer waits: when it ends, it does not report that another
// attempt is running.
func TestACallerWithTheRecordWaitsNoMore(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"in its work": false, "as it got it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Reexecute, nil)
				diedIn(t, s, keyOf("x"), time.Minute)
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.on("Claim", 0, func(_ context.Context, call func() error) error {
					err := call()
					if late && time.Since(start) >= time.Minute { // the lease is over: this one gets it
						cancel()
					}
					return err
				})
				res, err := everonce.Do(ctx, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					cancel()
					return everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "v", nil })
				}, everonce.WithWait(time.Hour))
				checkOutcome(t, res, err, everonce.Failed, context.Canceled)
			})
		})
	}
}

// The store's error of a call whose caller has gone is in the returned error, by its type too.
func TestCallerThatIsGoneGetsTheStoresError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := newFaultStore()
	s.on("Claim", 1, func(context.Context, func() error) error {
		cancel(errGone)
		return &net.OpError{Op: "read", Err: errNet}
	})
	res, err := everonce.Do(ctx, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), never(t))
	checkOutcome(t, res, err, everonce.Failed, errGone)
	var said *net.OpError
	checkEqual(t, "the store's error is included", errors.As(err, &said), true)
	checkEqual(t, "it is the store's failure", errors.Is(err, everonce.ErrStore), false)
}
