package enginetest

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

// A write that a store refuses for good is not repeated, and a record that another attempt has is left to it,
// whichever of the two errors the store returns.
func TestCompletionThatIsRefusedForGood(t *testing.T) {
	for _, c := range []struct {
		is      error
		outcome everonce.Outcome
		err     error
	}{
		{everonce.ErrLeaseLost, everonce.LeaseLost, everonce.ErrLeaseLost},
		{everonce.ErrAttemptEnded, everonce.LeaseLost, everonce.ErrLeaseLost},
		{driver.ErrNewerRecord, everonce.NotRecorded, everonce.ErrNotRecorded},
		{driver.ErrCorruptRecord, everonce.NotRecorded, everonce.ErrNotRecorded},
	} {
		t.Run(c.is.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				s.on("Complete", 0, refuse(fmt.Errorf("store: %w", c.is)))
				do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), returns("v", nil), c.outcome, c.err)
				checkEqual(t, "completions", s.count("Complete"), 1)
			})
		})
	}
}

// A try that hangs leaves time for another: it has StoreTimeout, of all the time that there is.
func TestCompletionThatHangsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Complete", 1, hang)
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		checkEqual(t, "completions", s.count("Complete"), 2)
	})
}

// To abandon an operation for one of its steps is not what its lease's end would do: it is tried for as long as a
// completion.
func TestAbandonedStepIsNamedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, nil)
		refusing := everonce.WithPolicy(everonce.Refuse)
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "charge", stepReturns("", errWork), refusing)
			checkErr(t, err, errWork)
		})
		down := time.Now().Add(20 * time.Second)
		s.on("Release", 0, func(_ context.Context, call func() error) error {
			if time.Now().Before(down) {
				return errNet
			}
			return call()
		})
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "charge", stepNever(t), refusing)
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "UnknownStep", s.record(t, keyOf("x")).UnknownStep, "charge")
	})
}

// So is the end of a step: the next attempt would take it for open.
func TestStepsEndIsRecordedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			v, err := everonce.Step(ctx, a, "charge", func(context.Context) (string, error) {
				down := time.Now().Add(20 * time.Second)
				s.on("SaveStep", 0, func(_ context.Context, call func() error) error {
					if time.Now().Before(down) {
						return errNet
					}
					return call()
				})
				return "v", nil
			})
			checkErr(t, err, nil)
			checkEqual(t, "value", v, "v")
		})
		saved, _ := stepIn(t, s, keyOf("x"), "charge")
		checkEqual(t, "state", saved.State, driver.StepDone)
	})
}

// An attempt that lost its record returns the record's answer, even if that is only a tombstone.
func TestLateCompletionBehindATombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 3 * time.Second})
		s.on("Renew", 0, refuse(errNet))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := do(t, r, keyOf("x"), sleeps(time.Minute, "late"), everonce.Expired, everonce.ErrExpired)
			checkEqual(t, "Summary", string(asError(t, err).Summary), "sum")
		}()
		time.Sleep(10 * time.Second)
		do(t, r, keyOf("x"), returns("second", nil), everonce.Executed, nil,
			everonce.WithLifetime(everonce.Lifetime{Retention: time.Second, Remember: time.Hour}), everonce.WithSummary(func(string) []byte { return []byte("sum") }))
		<-done
	})
}

// An unknown outcome inside another operation's work is reported for the outer one by a separate class, and an
// unknown step once.
func TestUnknownInsideIsReported(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	leaveUnknown(t, r, keyOf("inner"))
	do(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		res, err := everonce.Do(ctx, r, keyOf("inner"), never(t))
		return res.Value, err
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	checkEqual(t, "class", s.record(t, keyOf("x")).LastError, "step_unknown")
	_, err := do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "s", stepReturns("", errWork))
		checkErr(t, err, errWork)
		return "", everonce.NotDone(errWork)
	}, everonce.Failed, errWork)
	checkErr(t, err, errWork)
	_, err = do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "s", stepNever(t))
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	if e := asError(t, err); errors.Is(e.Cause, everonce.ErrOutcomeUnknown) {
		t.Errorf("%v says twice that it is unknown", err)
	}
}

// The classifier does not get errors of other calls of this package: they describe those calls, and say nothing
// about the work around them.
func TestErrorsOfOtherCallsAreNotClassified(t *testing.T) {
	r := newReceiver(t, newFaultStore(), everonce.Refuse, &everonce.Options{Classify: everonce.NotDone})
	do(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		res, err := everonce.Lookup[string](ctx, r, keyOf("other"))
		return res.Value, err
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
}
