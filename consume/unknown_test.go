package consume_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

var errDead = errors.New("the line went dead")

// asking returns a consumer under Reconcile whose handler fails, after the effect or not, and whose question is answered so.
func asking(t *testing.T, ran *int, answer func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error)) *rig {
	t.Helper()
	return rigged(t, func(context.Context, *consume.Message, order) error {
		if *ran++; *ran == 1 {
			return errDead
		}
		return nil
	}, func(s *consume.Spec[order]) { s.Policy, s.Reconcile = everonce.Reconcile, answer })
}

func retried(retries int) *consume.Message {
	m := first()
	m.Retries = retries
	return m
}

// Under Reconcile nobody needs to replay a letter for the question to be asked: what is unknown comes again for that.
func TestWhatIsAskedAboutComesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		verdict everonce.Verdict[struct{}]
		runs    int
	}{
		"it happened":       {everonce.Happened(struct{}{}), 1},
		"it did not happen": {everonce.NotHappened[struct{}](), 2},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			r := asking(t, &ran, func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) { return c.verdict, nil })
			if v := r.wants(retried(0), everonce.Unknown, consume.Retry); v.After < 500*time.Millisecond || !errors.Is(v.Err, errDead) {
				t.Errorf("after %v, %v", v.After, v.Err)
			}
			r.wants(retried(1), everonce.Executed, consume.Ack)
			r.wants(retried(1), everonce.Replayed, consume.Ack)
			if ran != c.runs {
				t.Errorf("it ran %d times, want %d", ran, c.runs)
			}
		})
	}
}

// One whose question has no answer for as long as it is retried is a dead letter that says so.
func TestWhatNobodyCanAnswerIsADeadLetter(t *testing.T) {
	asked, ran := 0, 0
	r := asking(t, &ran, func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
		asked++
		return everonce.Verdict[struct{}]{}, errDown
	})
	for retries := range 10 {
		r.wants(retried(retries), everonce.Unknown, consume.Retry)
	}
	r.wantsLetter(retried(10), everonce.Unknown, consume.Unknown)
	if ran != 1 || asked != 10 {
		t.Errorf("it ran %d times, and was asked about %d times", ran, asked)
	}
}

// A handler that panics, or ends its goroutine, leaves what its policy makes of that: under Refuse an unknown outcome, a dead
// letter that is called so, however often it was retried before.
func TestAHandlerThatDoesNotReturnIsWhatItsPolicySays(t *testing.T) {
	panics := func(context.Context, *consume.Message, order) error { panic("no") }
	exits := func(context.Context, *consume.Message, order) error { runtime.Goexit(); return nil }
	never := func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
		return everonce.Verdict[struct{}]{}, errDown
	}
	for name, handle := range map[string]func(context.Context, *consume.Message, order) error{"panics": panics, "exits": exits} {
		for policy, want := range map[everonce.Policy][2]string{ // at first, and at the last retry
			everonce.Refuse:    {"bury unknown", "bury unknown"},
			everonce.Reexecute: {"retry true", "bury exhausted"},
			everonce.Reconcile: {"retry true", "bury unknown"},
		} {
			t.Run(name+"/"+policy.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					recv, err := everonce.NewReceiver(memstore.New(nil), policy, nil)
					if err != nil {
						t.Fatal(err)
					}
					spec := consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle}
					if policy == everonce.Reconcile {
						spec.Reconcile = never
					}
					c, err := consume.New(recv, spec)
					if err != nil {
						t.Fatal(err)
					}
					in := make(chan consume.Delivery, 2)
					fresh, last := message("fresh"), message("last")
					last.m.Retries = 10
					in <- fresh
					in <- last
					close(in)
					if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(fresh.ended, []string{want[0]}) || !slices.Equal(last.ended, []string{want[1]}) {
						t.Errorf("ended as %v, and at the last retry as %v; want %v", fresh.ended, last.ended, want)
					}
				})
			})
		}
	}
}

// So it is for an adapter that collects by itself, and the letter says why.
func TestAGuardedHandlerThatPanicsInABatch(t *testing.T) {
	r := rigged(t, func(context.Context, *consume.Message, order) error { panic("no") }, nil)
	v := r.c.HandleBatch(t.Context(), []*consume.Message{first()})[0]
	if v.Outcome != everonce.Unknown || v.Disposition != consume.Bury || v.Letter.Reason != consume.Unknown || v.Letter.Detail != "consume: the handler panicked" || v.KeyHash == "" {
		t.Errorf("%+v", v)
	}
}
