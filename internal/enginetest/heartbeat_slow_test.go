package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// A renewal counts from when it was sent, and not from its answer (rule 2): so does the next one, and the local
// deadline.
func TestSlowRenewalCountsFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 12 * time.Second, StoreTimeout: time.Hour})
		s.on("Renew", 0, refuse(errNet))
		s.on("Renew", 1, func(_ context.Context, call func() error) error { // sent at 4 s, answered at 7 s
			err := call()
			time.Sleep(3 * time.Second)
			return err
		})
		start := time.Now()
		do(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			<-ctx.Done()
			checkEqual(t, "lost at", time.Since(start), 16*time.Second)
			return "", context.Cause(ctx)
		}, everonce.Failed, everonce.ErrLeaseLost)
		checkEqual(t, "the second beat", s.times("Renew")[1].Sub(start), 8*time.Second)
	})
}

// A renewal that hangs has StoreTimeout, so that there is time for many others.
func TestRenewalThatHangsHasStoreTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 60 * time.Second, StoreTimeout: 2 * time.Second})
		s.on("Renew", 1, hang)
		start := time.Now()
		do(t, r, keyOf("x"), sleeps(40*time.Second, "v"), everonce.Executed, nil)
		checkEqual(t, "the second beat", s.times("Renew")[1].Sub(start), 27*time.Second)
	})
}

// A renewal that is on its way when its attempt ends is the last one.
func TestRenewalThatOutlivesItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 12 * time.Second, StoreTimeout: time.Hour})
		s.on("Renew", 1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(3 * time.Second)
			return err
		})
		do(t, r, keyOf("x"), sleeps(5*time.Second, "v"), everonce.Executed, nil)
		time.Sleep(2500 * time.Millisecond) // it has come back, and no other is due before 8 s
		checkLeftNothing(t, r)
		time.Sleep(time.Minute)
		checkEqual(t, "renewals", s.count("Renew"), 1)
	})
}

// A renewal whose answer comes after the answer to a step, which was sent later, does not undo the step's renewal.
func TestRenewalIsAnsweredAfterALaterStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second, CompletionTimeout: time.Second})
		s.on("Renew", 0, refuse(errNet))
		s.on("Renew", 1, func(_ context.Context, call func() error) error { // sent after 1 s
			err := call()
			time.Sleep(950 * time.Millisecond)
			return err
		})
		start := time.Now()
		_, err := everonce.Do(t.Context(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			time.Sleep(1900 * time.Millisecond)
			_, err := everonce.Step(ctx, a, "s", func(context.Context) (string, error) { return "", nil })
			checkErr(t, err, nil)
			<-ctx.Done()
			checkErr(t, context.Cause(ctx), everonce.ErrLeaseLost)
			checkEqual(t, "the lease held for", time.Since(start), 4900*time.Millisecond)
			return "", ctx.Err()
		})
		checkErr(t, err, everonce.ErrOutcomeUnknown)
	})
}
