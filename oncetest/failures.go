package oncetest

import "github.com/everonce/everonce"

// The tests in which one thing fails.

// failEffect lets the first effect of the test fail.
func (t *trial) failEffect(f Fault) {
	failed := false
	t.world.run(func(c Call) Fault {
		if c.Op != OpEffect || failed {
			return Pass
		}
		failed = true
		return f
	})
}

func retryAfterFailure(t *trial) {
	op := t.operation()
	t.failEffect(Unreached)
	a, _ := t.reachEffect(op)
	if a.isDone() {
		t.Errorf("%s: the effect was not reached, and the answer was %v", op.Key, a.Outcome)
	}
	t.wantEffects(op, 0)
	a, _ = t.finish(op)
	if !a.isSuccess() {
		t.Errorf("%s: a retry after a failure that proved to have done nothing was answered %v (%v)", op.Key, a.Outcome, a.Err)
	}
	t.wantEffects(op, 1)
	t.again(op, a)
}

func failureBefore(t *trial) { t.failure(FailBefore) }
func failureAfter(t *trial)  { t.failure(FailAfter) }

// failure lets the effect fail with an error that says nothing, and judges by the mode.
func (t *trial) failure(f Fault) {
	t.Helper()
	op := t.operation()
	t.failEffect(f)
	a, faulted := t.reachEffect(op)
	if a.isSuccess() {
		t.Errorf("%s: the effect failed, and the answer was %v", op.Key, a.Outcome)
	}
	last, more := t.finish(op)
	t.judge(op, last, faulted || more)
	if t.subject.Mode == Reexecute && f == FailAfter && t.world.most() < 2 {
		t.Errorf("%s: the effect failed with an error that says nothing, and was not run again", op.Key)
	}
}

// judge is the oracle: it says by the mode whether the count of effects and the last answer are right.
// faulted tells whether a fault fell where it can leave the outcome unknown.
func (t *trial) judge(op Operation, last Answer, faulted bool) {
	t.Helper()
	n := t.effects(op)
	switch {
	case last.isSuccess():
		if n != 1 {
			t.Errorf("%s: answered %v, and took effect %d times, want 1", op.Key, last.Outcome, n)
		}
	case t.subject.Mode != Refuse || last.Outcome != everonce.Unknown:
		t.Errorf("%s: the last answer is %v (%v), want its result: the mode is %v; effects: %d", op.Key, last.Outcome, last.Err, t.subject.Mode, n)
	case n > 1:
		t.Errorf("%s took effect %d times, at most 1 is promised", op.Key, n)
	case !faulted:
		t.Errorf("%s: answered %v, and no fault fell between its claim and its completion", op.Key, last.Outcome)
	}
	if t.subject.Capabilities.SideEffects {
		for _, s := range t.sideEffects(op) {
			if s.Count > 1 || last.isSuccess() && s.Count != 1 {
				t.Errorf("%s: answered %v, and its side effect %q took hold %d times", op.Key, last.Outcome, s.Name, s.Count)
			}
		}
	}
}

// toUnknown brings an operation into the unknown.
func (t *trial) toUnknown(f Fault) Operation {
	t.Helper()
	op := t.operation()
	t.failEffect(f)
	t.reachEffect(op)
	a, _ := t.finish(op)
	if a.Outcome != everonce.Unknown {
		t.Fatalf("%s: after its effect failed with an error that says nothing it was answered %v (%v), want %v", op.Key, a.Outcome, a.Err, everonce.Unknown)
	}
	return op
}

func unknownStays(t *trial) {
	for want, f := range []Fault{FailBefore, FailAfter} {
		op := t.toUnknown(f)
		for i := range 3 {
			if i == 1 {
				t.elapse(t.subject.Lease)
			}
			if a, _ := t.deliver(op); a.Outcome != everonce.Unknown {
				t.Errorf("%s: its outcome was unknown, and then it was answered %v (%v)", op.Key, a.Outcome, a.Err)
			}
		}
		t.wantEffects(op, want)
	}
}

func unknownSettled(t *trial) {
	for happened, f := range []Fault{FailBefore, FailAfter} {
		op := t.toUnknown(f)
		if err := t.sys.Settle(t.Context(), op, happened == 1); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		a, _ := t.finish(op)
		if !a.isSuccess() {
			t.Errorf("%s: settled, and then answered %v (%v)", op.Key, a.Outcome, a.Err)
		}
		if happened == 1 {
			t.wantMarked(op, a)
		}
		t.wantEffects(op, 1)
	}
}

func storeError(t *trial) {
	op := t.operation()
	t.world.run(func(c Call) Fault {
		if c.Op == OpEffect || c.Op == OpIdentity { // the identity comes once, before all claims
			return Pass
		}
		return FailBefore
	})
	a, _ := t.deliver(op)
	t.wantStoreFaults()
	switch a.Outcome {
	case everonce.Failed, everonce.StoreFailed, everonce.NotRecorded:
	default:
		t.Errorf("%s: the store failed, and the answer was %v (%v): the sender takes it for an answer", op.Key, a.Outcome, a.Err)
	}
	t.wantEffects(op, 0)
	t.world.run(nil)
	a, _ = t.finish(op)
	if !a.isSuccess() {
		t.Errorf("%s: nothing was written, the store works again, and it was answered %v (%v)", op.Key, a.Outcome, a.Err)
	}
	t.wantEffects(op, 1)
}
