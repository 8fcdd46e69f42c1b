package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// stepWork is the function of a step.
type stepWork = func(context.Context) (string, error)

func stepReturns(v string, err error) stepWork {
	return func(context.Context) (string, error) { return v, err }
}

func stepNever(t testing.TB) stepWork {
	return func(context.Context) (string, error) {
		t.Error("the step ran")
		return "", errors.New("must not run")
	}
}

// inAttempt runs one attempt that ends in NotDone, so that another can follow.
func inAttempt(t testing.TB, r *everonce.Receiver, key everonce.Key, f func(ctx context.Context, a *everonce.Attempt), opts ...everonce.CallOption) {
	t.Helper()
	do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		f(ctx, a)
		return "", everonce.NotDone(errWork)
	}, everonce.Failed, errWork, opts...)
}

func TestStepRunsOnceOverAllAttempts(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	key := keyOf("x")
	inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
		v, err := everonce.Step(ctx, a, "charge", stepReturns("receipt", nil))
		checkErr(t, err, nil)
		checkEqual(t, "value", v, "receipt")
		rec, _ := stepIn(t, s, key, "charge")
		checkEqual(t, "state", rec.State, driver.StepDone)
		checkEqual(t, "Attempt", rec.Attempt, 1)
	})
	inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
		v, err := everonce.Step(ctx, a, "mail", stepReturns("sent", nil)) // the order is free
		checkErr(t, err, nil)
		checkEqual(t, "value", v, "sent")
		v, err = everonce.Step(ctx, a, "charge", stepNever(t))
		checkErr(t, err, nil)
		checkEqual(t, "replayed", v, "receipt")
	})
	rec, _ := stepIn(t, s, key, "charge")
	checkEqual(t, "Attempt", rec.Attempt, 1)
	rec, _ = stepIn(t, s, key, "mail")
	checkEqual(t, "Attempt of the later one", rec.Attempt, 2)
}

func stepIn(t testing.TB, s everonce.Store, key everonce.Key, name string) (driver.StepRecord, bool) {
	t.Helper()
	got, err := s.Get(context.Background(), driver.GetRequest{ID: key.RecordID()})
	checkErr(t, err, nil)
	return got.Record.Step(name)
}

func TestStepIsRecordedBeforeItRuns(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) {
			rec, ok := stepIn(t, s, keyOf("x"), "s")
			checkEqual(t, "recorded", ok, true)
			checkEqual(t, "state", rec.State, driver.StepOpen)
			checkEqual(t, "what the attempt knows", a.Steps()[0].State, driver.StepOpen)
			return "", nil
		})
		checkErr(t, err, nil)
		checkEqual(t, "what the attempt knows", a.Steps()[0].State, driver.StepDone)
	})
	checkEqual(t, "writes", s.count("SaveStep"), 2)
}

// A step whose begin cannot be written does not run.
func TestStepThatCanNotBeginDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("SaveStep", 0, refuse(errNet))
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			start := time.Now()
			_, err := everonce.Step(ctx, a, "s", stepNever(t))
			checkErr(t, err, everonce.ErrStore)
			checkErr(t, err, errNet)
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.StoreFailed)
			checkEqual(t, "Step", asError(t, err).Step, "s")
			checkEqual(t, "it was tried for", time.Since(start), 10*time.Second) // to begin, and to say that it did not
		})
		s.heal()
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "s", stepReturns("v", nil))
			checkErr(t, err, nil)
		})
	})
}

// A step ends as its function does; what follows in the next attempt is said by the step's policy.
func TestStepEndings(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		// ends is the state that is left; again, per policy, what asking for it again comes to.
		ends  driver.StepState
		again map[everonce.Policy]string
	}{
		{"nil", nil, driver.StepDone, map[everonce.Policy]string{everonce.Reexecute: "first", everonce.Refuse: "first", everonce.Reconcile: "first"}},
		{
			"an unmarked error", errWork, driver.StepOpen,
			map[everonce.Policy]string{everonce.Reexecute: "second", everonce.Refuse: "unknown", everonce.Reconcile: "asked"},
		},
		{
			"NotDone", everonce.NotDone(errWork), driver.StepNotDone,
			map[everonce.Policy]string{everonce.Reexecute: "second", everonce.Refuse: "second", everonce.Reconcile: "second"},
		},
		{
			"Permanent", everonce.Permanent("declined", errWork, []byte("d")), driver.StepDone,
			map[everonce.Policy]string{everonce.Reexecute: "declined", everonce.Refuse: "declined", everonce.Reconcile: "declined"},
		},
		{
			"classified", errClassified, driver.StepNotDone,
			map[everonce.Policy]string{everonce.Reexecute: "second", everonce.Refuse: "second", everonce.Reconcile: "second"},
		},
	} {
		for _, p := range policies {
			for _, own := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/own policy %v", c.name, p, own), func(t *testing.T) {
					s := memstore.New(nil)
					parent, opts := p, []everonce.CallOption{}
					if own { // the step's policy, not the operation's
						parent = everonce.Reexecute
						if p == everonce.Reexecute {
							parent = everonce.Refuse
						}
						opts = append(opts, everonce.WithPolicy(p))
					}
					asked := 0
					opts = append(opts, everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[string], error) {
						asked++
						checkEqual(t, "Step", a.Step, "s")
						checkEqual(t, "Attempt", a.Attempt, 1)
						return everonce.Happened("asked"), nil
					}))
					r := newReceiver(t, s, parent, &everonce.Options{Classify: notDoneIfClassified})
					key := keyOf("x")
					var first error
					inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
						var v string
						v, first = everonce.Step(ctx, a, "s", stepReturns("first", c.err), opts...)
						if c.err == nil {
							checkErr(t, first, nil)
							checkEqual(t, "value", v, "first")
							return
						}
						checkEqual(t, "value with an error", v, "")
						checkErr(t, first, errAny)
						if !strings.HasPrefix(first.Error(), `step "s": `) {
							t.Errorf("%q does not name the step", first)
						}
						if everonce.IsNotDone(first) {
							t.Error("the mark of a step's error speaks of the operation")
						}
						if c.ends != driver.StepDone {
							checkErr(t, first, c.err)
						}
					}, askNever(t))
					rec, _ := stepIn(t, s, key, "s")
					checkEqual(t, "state", rec.State, c.ends)
					var v string
					var err error
					res, doErr := everonce.Do(context.Background(), r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
						v, err = everonce.Step(ctx, a, "s", stepReturns("second", nil), opts...)
						return "", nil
					}, askNever(t))
					switch want := c.again[p]; want {
					case "unknown":
						checkErr(t, err, everonce.ErrOutcomeUnknown)
						checkEqual(t, "Step", asError(t, err).Step, "s")
						// It makes the parent abandoned, naming the step, whatever its policy and whatever it returns.
						checkOutcome(t, res, doErr, everonce.Unknown, everonce.ErrOutcomeUnknown)
						checkEqual(t, "the parent's step", asError(t, doErr).Step, "s")
						rec := recordIn(t, s, key)
						checkEqual(t, "UnknownStep", rec.UnknownStep, "s")
						checkEqual(t, "state", rec.State, driver.StateAbandoned)
						checkEqual(t, "class", rec.LastError, "step_unknown")
						checkEqual(t, "expires", rec.PurgeAt, time.Time{})
						_, again := do(t, r, key, never(t), everonce.Unknown, everonce.ErrOutcomeUnknown, askNever(t))
						checkEqual(t, "Step", asError(t, again).Step, "s")
					case "declined":
						checkOutcome(t, res, doErr, everonce.Executed, nil)
						checkEqual(t, "failure", *asPermanent(t, err), *asPermanent(t, first))
						checkEqual(t, "text", err.Error(), first.Error())
					default:
						checkOutcome(t, res, doErr, everonce.Executed, nil)
						checkErr(t, err, nil)
						checkEqual(t, "value", v, want)
					}
					checkEqual(t, "asked", asked == 1, c.again[p] == "asked")
				})
			}
		}
	}
}

var errClassified = errors.New("connection refused")

func notDoneIfClassified(err error) error {
	if errors.Is(err, errClassified) {
		return everonce.NotDone(err)
	}
	return nil
}

// A step's end describes the step only: neither its mark nor the classifier, which read its error already, says
// anything about the operation around it.
func TestNotDoneInAStepDoesNotReleaseTheParent(t *testing.T) {
	for name, stepErr := range map[string]error{"marked": everonce.NotDone(errWork), "classified": errClassified} {
		for _, p := range policies {
			t.Run(name+"/"+p.String(), func(t *testing.T) {
				s := memstore.New(nil)
				r := newReceiver(t, s, p, &everonce.Options{Classify: notDoneIfClassified})
				ask := askNever(t)
				want, wantErr := everonce.Unknown, everonce.ErrOutcomeUnknown
				if p == everonce.Reexecute {
					want, wantErr = everonce.Failed, errAny
				}
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("", stepErr), ask)
					return "", fmt.Errorf("wrapped: %w", err)
				}, want, wantErr, ask)
				// Unless the work says so itself, or all effects are in its steps.
				do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("", stepErr), ask)
					return "", everonce.NotDone(err)
				}, everonce.Failed, errAny, ask)
				do(t, r, keyOf("z"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					_, err := everonce.Step(ctx, a, "s", stepReturns("", stepErr), ask)
					return "", err
				}, everonce.Failed, errAny, ask, everonce.EffectsInSteps())
			})
		}
	}
}

// A permanent failure of a step that the work returns is the operation's too.
func TestPermanentFromAStep(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	_, err := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "charge", stepReturns("", everonce.Permanent("declined", errWork, nil)))
		return "", err
	}, everonce.Rejected, errAny)
	_, again := do(t, r, keyOf("x"), never(t), everonce.Rejected, errAny)
	checkEqual(t, "replay", *asPermanent(t, again), *asPermanent(t, err))
	checkEqual(t, "code", asPermanent(t, err).Code, "declined")
	// One that the work takes for what it is, is not.
	do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "charge", stepReturns("", everonce.Permanent("declined", errWork, nil)))
		checkErr(t, err, errAny)
		return "without", nil
	}, everonce.Executed, nil)
}

func TestEffectsInSteps(t *testing.T) {
	for _, p := range []everonce.Policy{everonce.Refuse, everonce.Reconcile} {
		t.Run(p.String(), func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, p, &everonce.Options{EffectsInSteps: true})
			ask := answer(everonce.StillUnknown[string](), nil)
			// An error while a step is open names the step.
			_, err := do(t, r, keyOf("open"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				_, err := everonce.Step(ctx, a, "charge", stepReturns("", errWork), ask)
				return "", err
			}, everonce.Unknown, everonce.ErrOutcomeUnknown, ask)
			named := map[everonce.Policy]string{everonce.Refuse: "charge"}[p] // what is asked about needs no settlement
			checkEqual(t, "Step", asError(t, err).Step, named)
			checkEqual(t, "UnknownStep", recordIn(t, s, keyOf("open")).UnknownStep, named)
			// One step open and to be repeated by its own policy: nothing to settle.
			do(t, r, keyOf("repeatable"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				_, err := everonce.Step(ctx, a, "metric", stepReturns("", errWork), everonce.WithPolicy(everonce.Reexecute))
				return "", err
			}, everonce.Failed, errWork, ask)
			do(t, r, keyOf("repeatable"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				return everonce.Step(ctx, a, "metric", stepReturns("v", nil), everonce.WithPolicy(everonce.Reexecute))
			}, everonce.Executed, nil, ask)
		})
	}
}

// Under Reexecute an open step holds nothing up: the operation runs again, and the step as its own policy says.
func TestEffectsInStepsThatRunAgain(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{EffectsInSteps: true})
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "charge", stepReturns("", errWork))
		return "", err
	}, everonce.Failed, errWork)
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateReleased)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "charge", stepReturns("v", nil))
	}, everonce.Executed, nil)
}

// A process that died with effects in steps may be followed, under Refuse too: the steps that it left
// open are refused, each by its own policy.
func TestEffectsInStepsAfterADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
		died := func(id string, states map[string]driver.StepState) {
			rec := diedIn(t, s, keyOf(id), time.Second)
			for name, state := range states {
				step := driver.StepRecord{Name: name, State: state, Attempt: 1}
				if state == driver.StepDone {
					step.Result = driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte(`"first"`)}
				}
				_, err := s.SaveStep(context.Background(), driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step})
				checkErr(t, err, nil)
			}
		}
		died("between", map[string]driver.StepState{"charge": driver.StepDone})
		died("in a step", map[string]driver.StepState{"charge": driver.StepDone, "mail": driver.StepOpen})
		died("in a metric", map[string]driver.StepState{"metric": driver.StepOpen})
		time.Sleep(time.Minute)
		do(t, r, keyOf("between"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			checkEqual(t, "Number", a.Number(), 2)
			return everonce.Step(ctx, a, "charge", stepNever(t))
		}, everonce.Executed, nil)
		_, err := do(t, r, keyOf("in a step"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			_, err := everonce.Step(ctx, a, "charge", stepNever(t))
			checkErr(t, err, nil)
			return everonce.Step(ctx, a, "mail", stepNever(t))
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "Step", asError(t, err).Step, "mail")
		// An attempt that fails before it came to the step which another left open names no step: that step's own
		// policy speaks when it is asked for.
		_, err = do(t, r, keyOf("in a metric"), returns("", errWork), everonce.Unknown, errWork)
		checkEqual(t, "Step", asError(t, err).Step, "")
		checkEqual(t, "never purged", recordIn(t, s, keyOf("in a metric")).PurgeAt, time.Time{})
		do(t, r, keyOf("in a metric"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "metric", stepReturns("v", nil), everonce.WithPolicy(everonce.Reexecute))
		}, everonce.Executed, nil)
	})
}

func TestStepNames(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		for _, name := range []string{"", strings.Repeat("n", driver.MaxStepNameLen+1), "a\nb", "\xff"} {
			_, err := everonce.Step(ctx, a, name, stepNever(t))
			checkErr(t, err, everonce.ErrInvalidArgument)
			checkEqual(t, "the key's fault", errors.Is(err, everonce.ErrInvalidKey), false)
		}
		for _, name := range []string{"a", "ü/%", strings.Repeat("n", driver.MaxStepNameLen)} {
			_, err := everonce.Step(ctx, a, name, stepReturns("", nil))
			checkErr(t, err, nil)
			_, err = everonce.Step(ctx, a, name, stepNever(t))
			checkErr(t, err, everonce.ErrInvalidArgument)
			checkEqual(t, "Step", asError(t, err).Step, name)
		}
	})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) { // repeated in one attempt, not over attempts
		_, err := everonce.Step(ctx, a, "a", stepNever(t))
		checkErr(t, err, nil)
	})
}

func TestTooManySteps(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		for i := range driver.MaxSteps {
			_, err := everonce.Step(ctx, a, fmt.Sprint(i), stepReturns("", nil))
			checkErr(t, err, nil)
		}
		_, err := everonce.Step(ctx, a, "one more", stepNever(t))
		checkErr(t, err, driver.ErrTooLarge)
		checkErr(t, err, everonce.ErrStore)
	})
}

func TestStepsRunConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, nil)
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			var wg sync.WaitGroup
			var running, most atomic.Int32
			start := time.Now()
			for i := range 20 {
				wg.Go(func() {
					v, err := everonce.Step(ctx, a, fmt.Sprint(i), func(context.Context) (int, error) {
						most.Store(max(most.Load(), running.Add(1)))
						time.Sleep(time.Second)
						running.Add(-1)
						return i, nil
					})
					checkErr(t, err, nil)
					checkEqual(t, "value", v, i)
				})
			}
			wg.Wait()
			checkEqual(t, "they took", time.Since(start), time.Second)
			return "", nil
		}, everonce.Executed, nil)
		checkEqual(t, "steps", len(recordIn(t, s, keyOf("x")).Steps), 20)
	})
}

// An attempt knows the steps of those before it, and its own over them.
func TestStepsThatAreKnown(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Reexecute, nil)
	key := keyOf("x")
	inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
		checkEqual(t, "at first", len(a.Steps()), 0)
		_, err := everonce.Step(ctx, a, "done", stepReturns("", nil))
		checkErr(t, err, nil)
		_, err = everonce.Step(ctx, a, "open", stepReturns("", errWork))
		checkErr(t, err, errWork)
	})
	inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
		checkEqual(t, "as they were left", a.Steps(), recordIn(t, s, key).Steps)
		_, err := everonce.Step(ctx, a, "new", stepReturns("", nil))
		checkErr(t, err, nil)
		_, err = everonce.Step(ctx, a, "open", stepReturns("", everonce.NotDone(errWork)))
		checkErr(t, err, errWork)
		var got []string
		for _, step := range a.Steps() {
			got = append(got, fmt.Sprintf("%s %v %d", step.Name, step.State, step.Attempt))
		}
		checkEqual(t, "with its own", got, []string{"done done 1", "open not_done 2", "new done 2"})
		checkEqual(t, "BeganAt is kept", a.Steps()[1].BeganAt, recordIn(t, s, key).Steps[1].BeganAt)
	})
}
