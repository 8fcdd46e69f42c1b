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

// Under Reconcile the reconciler is called without a replay by an operator: an unknown message is retried for that.
func TestAReconciledMessageComesAgain(t *testing.T) {
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

// A message that the reconciler cannot resolve within its retries becomes a dead letter with that reason.
func TestAnUnansweredQuestionLeadsToADeadLetter(t *testing.T) {
	asked, ran := 0, 0
	r := asking(t, &ran, func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
		asked++
		return everonce.Verdict[struct{}]{}, errDown
	})
	for retries := range 10 {
		r.wants(retried(retries), everonce.Unknown, consume.Retry)
	}
	r.wantsDeadLetter(retried(10), everonce.Unknown, consume.Unknown)
	if ran != 1 || asked != 10 {
		t.Errorf("it ran %d times, and was asked about %d times", ran, asked)
	}
}

// A handler that panics, also after its timeout, or ends its goroutine, leaves the outcome of its policy: under Refuse
// it is unknown, and the dead letter says so, however often the message was retried before.
func TestAHandlerThatDoesNotReturnFollowsThePolicy(t *testing.T) {
	panics := func(context.Context, *consume.Message, order) error { panic("no") }
	late := func(ctx context.Context, _ *consume.Message, _ order) error { <-ctx.Done(); panic("no") }
	exits := func(context.Context, *consume.Message, order) error { runtime.Goexit(); return nil }
	never := func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
		return everonce.Verdict[struct{}]{}, errDown
	}
	for name, handle := range map[string]func(context.Context, *consume.Message, order) error{"panics": panics, "panics late": late, "exits": exits} {
		for policy, want := range map[everonce.Policy][2]string{ // at first, and at the last retry
			everonce.Refuse:    {"set_aside unknown", "set_aside unknown"},
			everonce.Reexecute: {"retry true", "set_aside exhausted"},
			everonce.Reconcile: {"retry true", "set_aside unknown"},
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
					if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, HandleTimeout: time.Minute, Log: quiet}); err != nil {
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

// The same for an adapter that collects batches. The dead letter has the reason.
func TestAGuardedHandlerThatPanicsInABatch(t *testing.T) {
	r := rigged(t, func(context.Context, *consume.Message, order) error { panic("no") }, nil)
	v := r.c.HandleBatch(t.Context(), []*consume.Message{first()})[0]
	if v.Outcome != everonce.Unknown || v.Disposition != consume.SetAside || v.Death.Reason != consume.Unknown ||
		v.Death.Detail != "everonce: outcome unknown (key "+v.KeyHash+"): consume: the handler panicked" || v.KeyHash == "" {
		t.Errorf("%+v", v)
	}
}

// Whether an unknown message is retried depends on the error of the core, whatever the policy, since a step may have
// another one. A message with a reconciler is retried, and one that must be settled becomes a dead letter at once.
func TestAStepThatIsUnknownComesAgainWhereThatHelps(t *testing.T) {
	const refuse, reexecute, reconcile = everonce.Refuse, everonce.Reexecute, everonce.Reconcile
	for name, c := range map[string]struct {
		policy, step everonce.Policy
		want         []string // at each delivery
	}{
		"asked about, under Refuse":    {refuse, reconcile, []string{"unknown, retry", "unknown, retry", "executed, ack"}},
		"asked about, under Reexecute": {reexecute, reconcile, []string{"failed, retry", "unknown, retry", "executed, ack"}},
		"asked about, under Reconcile": {reconcile, reconcile, []string{"unknown, retry", "unknown, retry", "executed, ack"}},
		"refused, under Refuse":        {refuse, refuse, []string{"unknown, set_aside", "unknown, set_aside"}},
		"refused, under Reexecute":     {reexecute, refuse, []string{"failed, retry", "unknown, set_aside", "unknown, set_aside"}},
		"refused, under Reconcile":     {reconcile, refuse, []string{"unknown, set_aside", "unknown, set_aside"}},
		"run again, under Refuse":      {refuse, reexecute, []string{"failed, retry", "executed, ack"}},
	} {
		for ending, fail := range map[string]func() error{"fails": func() error { return errDead }, "panics": func() error { panic(errDead) }} {
			want := slices.Clone(c.want)
			if ending == "panics" && c.step == reexecute { // an open step is no proof that nothing was left half done
				want[0] = "unknown, retry"
			}
			t.Run(name+", "+ending, func(t *testing.T) {
				asked, ran := 0, 0
				r := rigged(t, func(ctx context.Context, _ *consume.Message, _ order) error {
					a, _ := everonce.AttemptFrom(ctx)
					_, err := everonce.Step(ctx, a, "mail", func(context.Context) (struct{}, error) {
						if ran++; ran == 1 {
							return struct{}{}, fail()
						}
						return struct{}{}, nil
					}, everonce.WithPolicy(c.step), everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
						if asked++; asked == 1 {
							return everonce.StillUnknown[struct{}](), nil
						}
						return everonce.Happened(struct{}{}), nil
					}))
					return err
				}, func(s *consume.Spec[order]) {
					s.Policy, s.EffectsInSteps = c.policy, true
					if c.policy == reconcile {
						s.Reconcile = func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
							return everonce.NotHappened[struct{}](), nil // the operation; its step has a separate reconciler
						}
					}
				})
				for n, want := range want {
					v := r.c.HandleBatch(t.Context(), []*consume.Message{retried(n)})[0] // which lets no panic through
					if got := v.Outcome.String() + ", " + v.Disposition.String(); got != want {
						t.Errorf("delivery %d: %s (%v), want %s", n, got, v.Err, want)
					}
					if v.Disposition == consume.SetAside && v.Death.Reason != consume.Unknown {
						t.Errorf("delivery %d: a dead letter, because %s", n, v.Death.Reason)
					}
				}
			})
		}
	}
}
