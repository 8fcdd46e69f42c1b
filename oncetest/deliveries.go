package oncetest

import (
	"time"

	"github.com/everonce/everonce"
)

// The tests in which nothing fails: what is sent again, how, and by whom.

func threeSends(t *trial) {
	op := t.operation()
	first := t.first(op)
	t.again(op, first)
	t.again(op, first)
	t.wantEffects(op, 1)
}

func sameResult(t *trial) {
	// Two operations, so that a result that is always the same is told from one that is saved, unless it is
	// the same by right: an empty answer.
	ops := []Operation{t.operation(), t.operation()}
	var firsts []Answer
	for _, op := range ops {
		firsts = append(firsts, t.first(op))
	}
	for i, op := range ops {
		a, _ := t.deliver(op)
		t.wantSame(op, firsts[i], a)
		t.wantMarked(op, a)
		if a.Outcome == everonce.Expired || a.Outcome == everonce.Elided {
			t.Errorf("%s: a duplicate was answered %v (%v) right after the first: that it is done was kept, and not its result", op.Key, a.Outcome, a.Err)
		}
	}
}

func marked(t *trial) {
	op := t.operation()
	first := t.first(op)
	for range 2 {
		a := t.send(op)
		t.wantSame(op, first, a)
		if a.Outcome != everonce.Replayed {
			t.Errorf("%s: a duplicate was answered %v, want %v", op.Key, a.Outcome, everonce.Replayed)
		}
	}
}

func differentOperations(t *trial) {
	a, b := t.operation(), t.operation()
	b.Amount = a.Amount // equal but for the key: two intended effects
	t.first(a)
	t.first(b)
	t.wantEffects(a, 1)
	t.wantEffects(b, 1)
}

func everyOperationTwice(t *trial) {
	ops := make([]Operation, 10)
	firsts := make([]Answer, len(ops))
	for i := range ops {
		ops[i] = t.operation()
		firsts[i] = t.first(ops[i])
		if i%2 == 0 { // half of them at once, the others after all
			t.again(ops[i], firsts[i])
		}
	}
	for i := len(ops) - 1; i >= 0; i-- {
		t.again(ops[i], firsts[i])
		t.wantEffects(ops[i], 1)
	}
}

func missingKey(t *trial) {
	op := t.operation()
	op.Key = ""
	a, _ := t.deliver(op)
	if a.Outcome != everonce.Invalid {
		t.Errorf("an operation without a key was answered %v, want %v", a.Outcome, everonce.Invalid)
	}
	t.wantEffects(op, 0)
}

func scopedPerClient(t *trial) {
	mine := t.operation()
	theirs := mine
	theirs.Client = "client-2"
	first := t.first(mine)
	second, _ := t.deliver(theirs)
	if !second.isSuccess() || t.subject.Capabilities.Marks && second.Outcome != everonce.Executed {
		t.Errorf("another client's key, by chance the same, was answered %v (%v): it is a separate operation", second.Outcome, second.Err)
	}
	t.wantEffects(mine, 1)
	t.wantEffects(theirs, 1)
	t.again(mine, first)
	t.again(theirs, second)
}

func mismatch(t *trial) {
	op := t.operation()
	other := op
	other.Amount += 1000
	first := t.first(op)
	for range 2 {
		if a, _ := t.deliver(other); a.Outcome != everonce.Mismatch {
			t.Errorf("%s: the key with another amount was answered %v, want %v", op.Key, a.Outcome, everonce.Mismatch)
		}
	}
	t.wantEffects(op, 1)
	t.again(op, first)
}

func rejection(t *trial) {
	op := t.operation()
	op.Rejected = true
	first, _ := t.deliver(op)
	if first.Outcome != everonce.Rejected {
		t.Fatalf("%s: an operation that must be refused for good was answered %v (%v)", op.Key, first.Outcome, first.Err)
	}
	for range 2 {
		a, _ := t.deliver(op)
		t.wantSame(op, first, a)
	}
	t.wantEffects(op, 0)
}

// lateRedelivery sends again half way to the last redelivery that the subject named, and at its end.
func lateRedelivery(t *trial) {
	const patience = time.Minute
	if !t.subject.Bubble && t.sys.Elapse == nil && t.subject.Redelivery > patience {
		t.Fatalf("oncetest: Subject.Redelivery is %v, and nothing makes it pass: set Subject.Bubble or System.Elapse", t.subject.Redelivery)
	}
	op := t.operation()
	t.first(op)
	half := t.subject.Redelivery / 2
	for _, pass := range []time.Duration{half, t.subject.Redelivery - half} {
		t.elapse(pass)
		a, _ := t.deliver(op)
		if !a.isSuccess() {
			t.Errorf("%s: a late duplicate was answered %v (%v)", op.Key, a.Outcome, a.Err)
		}
		t.wantMarked(op, a)
		t.wantEffects(op, 1)
	}
}

func (t *trial) sideEffects(op Operation) []SideEffect {
	t.Helper()
	list, err := t.sys.SideEffects(t.Context(), op)
	if err != nil {
		t.Fatalf("SideEffects: %v", err)
	}
	return list
}

func sideEffectsOnce(t *trial) {
	op := t.operation()
	first := t.first(op)
	if len(t.sideEffects(op)) == 0 {
		t.Fatal("oncetest: Capabilities.SideEffects is declared, and the operation had none")
	}
	t.again(op, first)
	t.again(op, first)
	for _, s := range t.sideEffects(op) {
		if s.Count != 1 {
			t.Errorf("%s: the side effect %q took hold %d times, want 1", op.Key, s.Name, s.Count)
		}
	}
}

func sideEffectKeys(t *trial) {
	seen := map[string]string{}
	for range 2 {
		op := t.operation()
		t.first(op)
		list := t.sideEffects(op)
		if len(list) == 0 {
			t.Fatal("oncetest: Capabilities.SideEffects is declared, and the operation had none")
		}
		for _, s := range list {
			this := s.Name + " of " + op.Key
			switch before, taken := seen[s.Key]; {
			case s.Key == "":
				t.Errorf("%s went out without a key", this)
			case taken:
				t.Errorf("%s went out with the key of %s: the other side takes one for the other", this, before)
			}
			seen[s.Key] = this
		}
	}
}

func compensation(t *trial) {
	op := t.operation()
	first := t.first(op)
	var answers []Answer
	for range 3 {
		a := t.sys.Compensate(t.Context(), op)
		if !a.isSuccess() {
			t.Errorf("%s: its compensation was answered %v (%v)", op.Key, a.Outcome, a.Err)
		}
		answers = append(answers, a)
	}
	for _, a := range answers[1:] {
		t.wantSame(op, answers[0], a)
		t.wantMarked(op, a)
	}
	n, err := t.sys.Compensations(t.Context(), op)
	if err != nil {
		t.Fatalf("Compensations: %v", err)
	}
	if n != 1 {
		t.Errorf("%s was undone %d times, want 1", op.Key, n)
	}
	t.again(op, first) // undone, and not open again
	t.wantEffects(op, 1)
}
