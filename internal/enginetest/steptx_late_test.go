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

// If a step's commit was lost, and found not to have been made, the next attempt finds the result of the step's
// last run: a value, or a permanent failure.
func TestStepTxAfterALostCommitHasTheResultOfItsLastRun(t *testing.T) {
	for name, fails := range map[string]bool{"done": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, x := newStepTx(t, nil)
				s.on("Commit", 1, func(context.Context, func() error) error { s.abort(); return errCommitLost })
				runs := 0
				attempt := func(w txWork) {
					inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
						v, err := everonce.StepTx(ctx, a, x, "charge", w)
						if fails {
							checkEqual(t, "code", asPermanent(t, err).Code, "declined")
						} else {
							checkErr(t, err, nil)
							checkEqual(t, "value", v, 30)
						}
						checkEqual(t, "what the attempt knows", a.Steps()[0].State, driver.StepDone)
					})
				}
				attempt(func(ctx context.Context, tx *mapTx) (int, error) {
					if runs++; runs == 2 && fails {
						return 0, everonce.Permanent("declined", nil, nil)
					}
					return adds(ctx, tx)
				})
				checkEqual(t, "runs", runs, 2)
				attempt(txNever(t))
			})
		})
	}
}

// A step's lost commit is looked up past the end of its caller's context, and the attempt gets the result.
func TestStepTxWhoseCommitWasLostWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		s.on("Commit", 1, lose(errCommitLost))
		ctx, cancel := context.WithCancel(context.Background())
		res, err := everonce.Do(ctx, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			v, err := everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx *mapTx) (int, error) {
				cancel()
				return adds(ctx, tx)
			})
			checkErr(t, err, nil)
			checkEqual(t, "value", v, 30)
			checkEqual(t, "what the attempt knows", a.Steps()[0].State, driver.StepDone)
			return "", nil
		})
		checkOutcome(t, res, err, everonce.Executed, nil)
		checkEqual(t, "balance", s.row("balance"), 30)
	})
}

// A refusal for good is recorded when its transaction has been rolled back, whose locks could be in the way; a
// classifier's too.
func TestStepTxIsRolledBackBeforeItsRefusalIsRecorded(t *testing.T) {
	s := newMapStore()
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Classify: func(err error) error {
		if errors.Is(err, errClassified) {
			return everonce.Permanent("classified", nil, nil)
		}
		return nil
	}})
	x := newTxReceiver(t, s, nil)
	s.on("SaveStep", 0, func(_ context.Context, call func() error) error {
		s.checkIdle(t)
		return call()
	})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.StepTx(ctx, a, x, "charge", addsThen(func(*mapTx) error { return errClassified }))
		checkEqual(t, "code", asPermanent(t, err).Code, "classified")
		checkEqual(t, "saved", a.Steps()[0].State, driver.StepDone)
	})
	checkEqual(t, "writes", s.count("SaveStep"), 1)
}

// A commit that was given up for lost arrives when the step has failed in a further run: before the failure is
// recorded it is the step's result, and afterwards it takes no effect. The work gets the one that holds.
func TestStepTxWhoseLateCommitFollowsAFailure(t *testing.T) {
	for name, before := range map[string]bool{"before it is recorded": true, "once it is recorded": false, "it is recorded by the attempt's end alone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, x := newStepTx(t, nil)
				byEnd := strings.HasSuffix(name, "alone")
				if byEnd {
					s.on("SaveStep", 0, refuse(errNet))
				}
				var arrive func() error
				s.on("Commit's writes", 1, func(_ context.Context, call func() error) error { arrive = call; return errCommitLost })
				commits := func() error {
					if err := arrive(); err != nil {
						return err
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.open[0].commit()
				}
				inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
					runs := 0
					v, err := everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx *mapTx) (int, error) {
						if runs++; runs == 1 {
							return adds(ctx, tx)
						}
						if before {
							checkErr(t, commits(), nil)
						}
						return 0, errWork
					})
					checkEqual(t, "runs", runs, 2)
					if before {
						checkErr(t, err, nil)
						checkEqual(t, "value", v, 30)
						checkEqual(t, "what the attempt knows", a.Steps()[0].State, driver.StepDone)
						return
					}
					checkErr(t, err, errWork)
					if !byEnd {
						checkErr(t, commits(), everonce.ErrLeaseLost)
						s.abort()
					}
				})
				if byEnd {
					checkErr(t, commits(), everonce.ErrLeaseLost)
					s.abort()
				}
				checkEqual(t, "balance", s.row("balance"), map[bool]int{true: 30, false: 0}[before])
				s.checkIdle(t)
			})
		})
	}
}
