package oncetest

import (
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// guarded are the policies with the modes that they promise.
var guarded = []struct {
	policy everonce.Policy
	mode   Mode
}{{everonce.Reexecute, Reexecute}, {everonce.Refuse, Refuse}, {everonce.Reconcile, Reconcile}}

func TestRun(t *testing.T) {
	for _, g := range guarded {
		t.Run(g.mode.String(), func(t *testing.T) {
			Run(t, subjectOf(g.mode, func() *payments { return newPayments(g.policy) }))
		})
		t.Run(g.mode.String()+" in steps", func(t *testing.T) {
			Run(t, subjectOf(g.mode, func() *payments {
				p := newPayments(g.policy)
				p.inSteps, p.wait = true, time.Minute
				return p
			}))
		})
	}
}

// TestRunInRealTime is for systems whose time is not fake, as those with a database are.
func TestRunInRealTime(t *testing.T) {
	const lease = 500 * time.Millisecond // longer than a delivery takes, with what fails in it
	s := subjectOf(Reexecute, func() *payments {
		p := newPayments(everonce.Reexecute)
		p.wait = time.Minute
		p.life = func(o everonce.Options) everonce.Options {
			o.Lease = lease
			return o
		}
		return p
	})
	s.Bubble, s.Redelivery, s.Lease = false, time.Millisecond, lease
	Run(t, s)
}

// Faults that no test has made let everything pass.
func TestZeroFaults(t *testing.T) {
	var f Faults
	if fault := f.Plan()(Call{Op: OpClaim, N: 1, Seq: 1}); fault != Pass {
		t.Errorf("%v", fault)
	}
	happened := false
	if err := f.Effect(t.Context(), "charge", func() error { happened = true; return nil }); err != nil || !happened {
		t.Errorf("happened: %v, %v", happened, err)
	}
}

// The answer of a call has its outcome, what a duplicate must get again, and how long the sender was told to wait.
func TestAnswerOf(t *testing.T) {
	failure := &everonce.PermanentError{Code: "declined"}
	running := &everonce.Error{Outcome: everonce.InProgress, Sentinel: everonce.ErrInProgress, RetryAfter: time.Second}
	for name, c := range map[string]struct {
		res  everonce.Result[string]
		err  error
		want Answer
	}{
		"done":     {everonce.Result[string]{Value: "v", Outcome: everonce.Executed}, nil, Answer{Outcome: everonce.Executed, Result: "v"}},
		"refused":  {everonce.Result[string]{Outcome: everonce.Rejected}, failure, Answer{Outcome: everonce.Rejected, Result: failure, Err: failure}},
		"running":  {everonce.Result[string]{Outcome: everonce.InProgress}, running, Answer{Outcome: everonce.InProgress, RetryAfter: time.Second, Err: running}},
		"not done": {everonce.Result[string]{Outcome: everonce.Failed}, ErrInjected, Answer{Outcome: everonce.Failed, Err: ErrInjected}},
	} {
		if got := AnswerOf(c.res, c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
