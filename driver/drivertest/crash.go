package drivertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// crashChecks enumerate crash points: every store call and every effect of an operation is numbered, and for each
// and each way to go wrong the operation is run, and then retried by fresh processes to its end. The expected end
// depends on the policy: see each check.
func crashChecks() []check {
	return []check{
		{name: "CrashPoints/Reexecute", run: func(e *env) {
			doubles := e.crashEverywhere(func() *trial { return &trial{policy: everonce.Reexecute, gateway: newGateway(true)} })
			if doubles != 0 {
				e.Errorf("a gateway that deduplicates shows %d doubles", doubles)
			}
		}},
		{name: "CrashPoints/ReexecuteWithoutDeduplicationDoubles", run: func(e *env) {
			// Without deduplication at the other side, running again must show a double somewhere: or
			// the enumeration would be blind to one.
			if doubles := e.crashEverywhere(func() *trial { return &trial{policy: everonce.Reexecute, gateway: newGateway(false)} }); doubles == 0 {
				e.Errorf("no crash point led to a double effect at a gateway that does not deduplicate: the test is blind")
			}
		}},
		{name: "CrashPoints/Refuse", run: func(e *env) {
			e.crashEverywhere(func() *trial { return &trial{policy: everonce.Refuse, gateway: newGateway(false)} })
		}},
		{name: "CrashPoints/Reconcile", run: func(e *env) {
			e.crashEverywhere(func() *trial { return &trial{policy: everonce.Reconcile, gateway: newGateway(false)} })
		}},
		{name: "CrashPoints/Steps", run: func(e *env) {
			e.crashEverywhere(func() *trial { return &trial{policy: everonce.Refuse, gateway: newGateway(false), steps: true} })
		}},
		{name: "CrashPoints/NotDone", run: func(e *env) {
			e.crashEverywhere(func() *trial { return &trial{policy: everonce.Refuse, gateway: newGateway(false), declines: 1} })
		}},
		{name: "CrashPoints/TwoFaults", run: checkTwoFaults},
	}
}

// trial is one operation on its way through processes that fail.
type trial struct {
	e       *env
	key     everonce.Key
	policy  everonce.Policy
	gateway *gateway
	steps   bool
	// declines is how often the work first ends with NotDone.
	declines int
	// open returns the store as a process has it, and what happens when the process has ended; work
	// stands for the trial's own, and verify for its own count of effects. All may be nil.
	open   func(p *process) (driver.Store, func())
	work   func(ctx context.Context, a *everonce.Attempt, p *process) (string, error)
	verify func()

	attempts int
	answers  []string // values that were returned with success
	unknown  bool     // the last answer was ErrOutcomeUnknown
	settled  bool
	history  []string
}

// crashEverywhere runs the trial once without a fault to number its points, and once for each point and
// each fault. It returns how many of them doubled an effect.
func (e *env) crashEverywhere(newTrial func() *trial) (doubles int) {
	e.Helper()
	points := e.count(newTrial)
	for at := range points {
		for _, how := range faults {
			tr := newTrial()
			tr.e, tr.key = e, e.key()
			p := newProcess(at, how)
			tr.deliver(p)
			if reached := p.reached(); len(reached) <= at {
				e.Fatalf("point %d (%s) was not reached: %v", at, points[at], reached)
			}
			tr.name(fmt.Sprintf("point %d of %v %v", at, points, how))
			doubles += tr.finish()
			tr.onlyWhereAllowed(points[at], how)
		}
	}
	return doubles
}

// count returns the points of a trial that nothing happens to.
func (e *env) count(newTrial func() *trial) []string {
	e.Helper()
	tr := newTrial()
	tr.e, tr.key = e, e.key()
	p := newProcess(-1, noFault)
	tr.deliver(p)
	tr.finish()
	points := p.reached()
	if len(points) < 2 {
		e.Fatalf("only %d points were numbered: %v", len(points), points)
	}
	return points
}

// checkTwoFaults lets the first retry fail too, wherever the first process failed.
func checkTwoFaults(e *env) {
	for _, policy := range []everonce.Policy{everonce.Reexecute, everonce.Refuse, everonce.Reconcile} {
		newTrial := func() *trial { return &trial{policy: policy, gateway: newGateway(policy == everonce.Reexecute)} }
		points := e.count(newTrial)
		for first := range points {
			for _, how := range []fault{failAfter, dieBefore, dieAfter} {
				for second := range points {
					for _, then := range []fault{failAfter, dieAfter} {
						tr := newTrial()
						tr.e, tr.key = e, e.key()
						tr.deliver(newProcess(first, how))
						tr.lapse()
						tr.deliver(newProcess(second, then))
						tr.name(fmt.Sprintf("%v at %d of %v, then %v at %d", how, first, points, then, second))
						tr.finish()
					}
				}
			}
		}
	}
}

func (tr *trial) name(what string) {
	tr.history = append([]string{tr.policy.String() + ", " + what}, tr.history...)
}

func (tr *trial) fatalf(format string, args ...any) {
	tr.e.Helper()
	tr.e.Fatalf("%v: %s", tr.history, fmt.Sprintf(format, args...))
}

// receiver returns a fresh receiver, which waits for a call until it is certain that it hangs.
func (e *env) receiver(s driver.Store, policy everonce.Policy) *everonce.Receiver {
	e.Helper()
	r, err := everonce.NewReceiver(s, policy, &everonce.Options{
		Lease: long, Lifetime: forLong, Codec: everonce.Raw(), Owner: "suite", CompletionTimeout: completion, StoreTimeout: patience,
	})
	if err != nil {
		e.Fatalf("NewReceiver: %v", err)
	}
	return r
}

// deliver brings the operation to a process, which may not live through it.
func (tr *trial) deliver(p *process) {
	tr.e.Helper()
	tr.unknown = false
	var s driver.Store = &faultStore{tr.e.s, p}
	if tr.open != nil {
		var closed func()
		s, closed = tr.open(p)
		defer closed()
	}
	r := tr.e.receiver(s, tr.policy)
	opts := []everonce.CallOption{sumA}
	if tr.policy == everonce.Reconcile {
		opts = append(opts, everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[string], error) {
			return tr.truth(a, "charge", "receipt"), nil
		}))
	}
	if tr.steps {
		opts = append(opts, everonce.EffectsInSteps())
	}
	var res everonce.Result[string]
	var err error
	lived := p.run(func() {
		res, err = everonce.Do(tr.e.ctx, r, tr.key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
			tr.attempts++
			if tr.attempts <= tr.declines {
				return "", everonce.NotDone(errInjected)
			}
			switch {
			case tr.work != nil:
				return tr.work(ctx, a, p)
			case tr.steps:
				return tr.workInSteps(ctx, a, p)
			}
			return "receipt", tr.gateway.call(p, a.DownstreamKey("charge"))
		}, opts...)
	})
	if !lived {
		tr.history = append(tr.history, "gone")
		return // its error is lost with the process
	}
	tr.answered(res, err)
}

// truth is the answer of a gateway that is asked what happened.
func (tr *trial) truth(a everonce.Abandoned, name, value string) everonce.Verdict[string] {
	if tr.gateway.happened(a.Downstream(name)) {
		return everonce.Happened(value)
	}
	return everonce.NotHappened[string]()
}

// workInSteps has an effect in each of three steps, each under a different policy.
func (tr *trial) workInSteps(ctx context.Context, a *everonce.Attempt, p *process) (string, error) {
	effect := func(name string, opts ...everonce.CallOption) error {
		_, err := everonce.Step(ctx, a, name, func(context.Context) (string, error) {
			return name, tr.gateway.call(p, a.DownstreamKey(name))
		}, opts...)
		return err
	}
	if err := effect("mail", everonce.WithPolicy(everonce.Refuse)); err != nil {
		return "", err
	}
	if err := effect("hook", everonce.WithPolicy(everonce.Reconcile), everonce.WithReconcile(func(_ context.Context, b everonce.Abandoned) (everonce.Verdict[string], error) {
		return tr.truth(b, "hook", "hook"), nil
	})); err != nil {
		return "", err
	}
	return "receipt", effect("event", everonce.WithPolicy(everonce.Refuse))
}

func (tr *trial) answered(res everonce.Result[string], err error) {
	tr.e.Helper()
	tr.history = append(tr.history, res.Outcome.String())
	tr.unknown = errors.Is(err, everonce.ErrOutcomeUnknown)
	if err == nil {
		tr.answers = append(tr.answers, res.Value)
	}
}

// lapse ends the lease of an attempt whose process is gone.
func (tr *trial) lapse() {
	tr.e.Helper()
	got := tr.e.look(tr.key.RecordID())
	if !got.Found || got.Record.StateAt(got.Now) != driver.StateClaimed {
		return
	}
	a := attemptOf(tr.e, claimReq(tr.key), driver.ClaimResult{Record: got.Record})
	a.lapse()
}

// finish retries the operation until it has ended, and judges what became of it: 1 if an effect doubled.
func (tr *trial) finish() (doubled int) {
	tr.e.Helper()
	const tries = 8
	for try := 0; !tr.over(); try++ {
		if try == tries {
			tr.fatalf("the operation has not ended after %d retries", tries)
		}
		tr.lapse()
		tr.deliver(newProcess(-1, noFault))
		if tr.unknown && tr.steps {
			tr.settle()
		}
	}
	// Once more: nothing moves.
	unknown, attempts := tr.unknown, tr.attempts
	tr.deliver(newProcess(-1, noFault))
	if tr.attempts != attempts || tr.unknown != unknown {
		tr.fatalf("a duplicate of an operation that has ended ran, unknown before: %v, and after: %v", unknown, tr.unknown)
	}
	for _, v := range tr.answers {
		if v != "receipt" {
			tr.fatalf("answered with %q, want the receipt", v)
		}
	}
	if doubled = tr.judge(); doubled > 0 && (tr.policy != everonce.Reexecute || tr.gateway.deduplicates) {
		tr.fatalf("an effect happened more than once: %v", tr.gateway.effects)
	}
	return doubled
}

// over reports whether the last answer was the last word.
func (tr *trial) over() bool {
	got := tr.e.look(tr.key.RecordID())
	if got.Found && got.Record.State == driver.StateCompleted {
		return true
	}
	return tr.unknown && !tr.steps && tr.policy == everonce.Refuse
}

// settle settles the unknown step by the gateway's ledger.
func (tr *trial) settle() {
	tr.e.Helper()
	rec := tr.e.get(tr.key)
	if rec.UnknownStep == "" {
		tr.fatalf("unknown, and no step is named")
	}
	if rec.UnknownStep == "hook" {
		tr.fatalf("the step that is to be asked about has to be settled")
	}
	s := everonce.Settlement{Verdict: everonce.SettleNotDone, Step: rec.UnknownStep, Token: rec.Token}
	r := tr.e.receiver(tr.e.s, tr.policy)
	if tr.gateway.happened(r.DownstreamKey(tr.key, rec.UnknownStep)) {
		s.Verdict, s.Value = everonce.SettleDone, rec.UnknownStep
	}
	if err := r.Settle(tr.e.ctx, tr.key, s); err != nil {
		tr.fatalf("Settle: %v", err)
	}
	tr.history = append(tr.history, "settled "+rec.UnknownStep)
	tr.unknown, tr.settled = false, true
}

// judge counts the effects against what was promised.
func (tr *trial) judge() (doubled int) {
	tr.e.Helper()
	if tr.verify != nil {
		tr.verify()
		return 0
	}
	effects, keys := tr.gateway.total()
	want := 1
	if tr.steps {
		want = 3
	}
	if keys > want || !tr.unknown && keys != want {
		tr.fatalf("%d effects happened, want %d; the operation ended unknown: %v", keys, want, tr.unknown)
	}
	if tr.unknown && tr.policy != everonce.Refuse {
		tr.fatalf("unknown, under %v", tr.policy)
	}
	if effects > keys {
		return 1
	}
	return 0
}

// onlyWhereAllowed checks that an operation is unknown only if the fault fell between the sending of its
// claim and its completion, and was not one that the receiver lives through.
func (tr *trial) onlyWhereAllowed(point string, how fault) {
	tr.e.Helper()
	if (tr.unknown || tr.settled) && point != "effect" && how < dieBefore {
		tr.fatalf("unknown, though only a call of the store failed: %s %v", point, how)
	}
}
