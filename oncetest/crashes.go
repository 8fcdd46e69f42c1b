package oncetest

import (
	"sync/atomic"

	"github.com/everonce/everonce"
)

// The tests in which the process dies.

func afterRestart(t *trial) {
	op := t.operation()
	first := t.first(op)
	t.restart()
	t.again(op, first)
	t.wantEffects(op, 1)
}

// savesRecord reports whether a call can be the one that saves the record of the work.
func savesRecord(op Op) bool {
	switch op {
	case OpComplete, OpTxComplete, OpRecord, OpCommit:
		return true
	}
	return false
}

func isEffect(op Op) bool { return op == OpEffect }

func crashBeforeWork(t *trial) { t.crash(isEffect, dieBefore, (*trial).wantEffectFaults) }
func crashAfterWork(t *trial)  { t.crash(isEffect, dieAfter, (*trial).wantEffectFaults) }
func crashBeforeSave(t *trial) { t.crash(savesRecord, dieBefore, (*trial).wantStoreFaults) }
func crashAfterSave(t *trial)  { t.crash(savesRecord, dieAfter, (*trial).wantStoreFaults) }

// crash lets the process die at the first call of that kind, restarts it, and sends until the answer is
// final.
func (t *trial) crash(at func(Op) bool, how Fault, wired func(*trial)) {
	t.Helper()
	op := t.operation()
	var reached atomic.Bool // a system may work on when it has answered
	t.world.run(func(c Call) Fault {
		if !at(c.Op) || reached.Swap(true) {
			return Pass
		}
		return how
	})
	a, faulted := t.reach(op, reached.Load)
	wired(t)
	switch {
	case !reached.Load():
		t.Fatalf("%s: answered %v (%v) without coming to where the process should die", op.Key, a.Outcome, a.Err)
	case a.isSuccess() && how == dieBefore:
		t.Errorf("%s: answered %v, and its record was not saved: the sender will not come again", op.Key, a.Outcome)
	}
	t.restart()
	last, more := t.finish(op)
	t.judge(op, last, faulted || more)
	if last.isSuccess() {
		t.again(op, last)
	} else if a, _ := t.deliver(op); a.Outcome != everonce.Unknown {
		t.Errorf("%s: its outcome was unknown, and then it was answered %v (%v)", op.Key, a.Outcome, a.Err)
	}
}
