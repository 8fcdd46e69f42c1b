package oncetest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// trial is one test: a system, and what the test has sent to it.
type trial struct {
	testing.TB
	subject *Subject
	name    string
	world   *world
	sys     System
	n       int
	rng     *rand.Rand
	logged  bool
}

func newTrial(tb testing.TB, s *Subject, name string) *trial {
	tb.Helper()
	t := &trial{TB: tb, subject: s, name: name, world: newWorld()}
	t.rng = rand.New(rand.NewPCG(s.Seed, 1)) //nolint:gosec // chance is what is wanted, not secrecy
	tb.Cleanup(func() {
		if tb.Failed() {
			t.logTrace(nil)
			tb.Logf("replay with: %s=%d go test -run '^%s$'", SeedVariable, s.Seed, strings.ReplaceAll(tb.Name(), "/", "$/^"))
		}
	})
	t.use(s.New(tb, &Faults{world: t.world}))
	return t
}

// use takes a system that New or Restart built.
func (t *trial) use(sys System) {
	t.Helper()
	t.subject.compare(t, sys)
	t.sys = sys
}

// restart ends the life of the system's process, and starts the next. Nothing fails in it.
func (t *trial) restart() {
	t.Helper()
	t.world.run(nil)
	t.use(t.sys.Restart(&Faults{world: t.world}))
}

// operation returns an operation that was never sent before, in this run or another.
func (t *trial) operation() Operation {
	t.n++
	return Operation{Key: fmt.Sprintf("%s-%x-%d", t.name, t.subject.Seed, t.n), Amount: 100 + t.n, Client: "client-1"}
}

// send delivers an operation once. It may be called concurrently where the subject may.
func (t *trial) send(op Operation) Answer {
	t.Helper()
	a := t.sys.Deliver(t.Context(), op)
	if a.Outcome == 0 || strings.HasPrefix(a.Outcome.String(), "outcome(") {
		t.Errorf("Deliver returned no outcome of the set (%v)", a.Outcome)
	}
	return a
}

// deliver is send, alone: with its calls numbered from 1, and in the trace.
func (t *trial) deliver(op Operation) (a Answer, faulted bool) {
	t.Helper()
	t.world.begin(op)
	a = t.send(op)
	return a, t.world.end(a)
}

// most is how many deliveries of one operation may be needed until the answer is final.
const most = 100

// finish delivers an operation until its answer is final: done, or unknown where that is final. faulted reports
// whether a fault can have left it unknown.
func (t *trial) finish(op Operation) (a Answer, faulted bool) {
	t.Helper()
	for range most {
		var f bool
		a, f = t.deliver(op)
		faulted = faulted || f
		if t.isFinal(a) {
			return a, faulted
		}
		t.comeBack(op, a)
	}
	t.Fatalf("%s: after %d deliveries there is no final answer, the last is %v (%v)", op.Key, most, a.Outcome, a.Err)
	return a, faulted
}

// reach delivers an operation until what is awaited has happened, or the answer is final. One delivery does it, unless
// the machine is so busy that a claim has outlived its lease before the work was called.
func (t *trial) reach(op Operation, happened func() bool) (a Answer, faulted bool) {
	t.Helper()
	for range most {
		if a, faulted = t.deliver(op); happened() || t.isFinal(a) {
			break
		}
		t.comeBack(op, a)
	}
	return a, faulted
}

// reachEffect is reach, up to the first call of the effect.
func (t *trial) reachEffect(op Operation) (a Answer, faulted bool) {
	t.Helper()
	before := t.world.count(OpEffect)
	a, faulted = t.reach(op, func() bool { return t.world.count(OpEffect) > before })
	t.wantEffectFaults()
	return a, faulted
}

// isFinal reports whether to send the operation again would change nothing.
func (t *trial) isFinal(a Answer) bool {
	return a.isDone() || a.Outcome == everonce.Unknown && t.subject.Mode == Refuse
}

// comeBack waits for as long as the sender of an operation must, before it sends again.
func (t *trial) comeBack(op Operation, a Answer) {
	t.Helper()
	switch a.Outcome {
	case everonce.Mismatch, everonce.Invalid:
		t.Fatalf("%s was refused as %v (%v), and is what was sent before", op.Key, a.Outcome, a.Err)
	case everonce.InProgress: // of an attempt that runs no more, for the tests send one by one
		t.elapse(t.subject.Lease)
	}
}

// elapse lets time pass for the system.
func (t *trial) elapse(d time.Duration) {
	if t.sys.Elapse != nil {
		t.sys.Elapse(d)
		return
	}
	time.Sleep(d)
}

// effects counts the effects of an operation.
func (t *trial) effects(op Operation) int {
	t.Helper()
	n, err := t.sys.Effects(t.Context(), op)
	if err != nil {
		t.Fatalf("Effects: %v", err)
	}
	return n
}

// wantEffects fails unless the operation took effect that often.
func (t *trial) wantEffects(op Operation, want int) {
	t.Helper()
	if got := t.effects(op); got != want {
		t.Errorf("%s: %d effects, want %d", op.Key, got, want)
	}
}

// first delivers an operation that is new, while nothing fails: it must be executed.
func (t *trial) first(op Operation) Answer {
	t.Helper()
	a, _ := t.deliver(op)
	if !a.isSuccess() {
		t.Fatalf("%s: the first delivery, with nothing failing, was answered %v (%v)", op.Key, a.Outcome, a.Err)
	}
	if t.subject.Capabilities.Marks && a.Outcome != everonce.Executed {
		t.Errorf("%s: the first delivery was answered %v, want %v", op.Key, a.Outcome, everonce.Executed)
	}
	t.wantEffects(op, 1)
	return a
}

// again delivers an operation that is done, while nothing fails: it must be answered as before.
func (t *trial) again(op Operation, before Answer) {
	t.Helper()
	a, _ := t.deliver(op)
	t.wantSame(op, before, a)
	t.wantMarked(op, a)
}

func (t *trial) wantSame(op Operation, before, a Answer) {
	t.Helper()
	switch {
	case a.isSuccess() != before.isSuccess() || !a.isDone():
		t.Errorf("%s: a duplicate was answered %v (%v), the first %v", op.Key, a.Outcome, a.Err, before.Outcome)
	case a.Outcome == everonce.Expired || a.Outcome == everonce.Elided: // it says that it has no result any more
	case !reflect.DeepEqual(a.Result, before.Result):
		t.Errorf("%s: a duplicate got the result %#v, the first %#v", op.Key, a.Result, before.Result)
	}
}

func (t *trial) wantMarked(op Operation, a Answer) {
	t.Helper()
	if t.subject.Capabilities.Marks && a.Outcome == everonce.Executed {
		t.Errorf("%s: a duplicate was answered %v: it is not marked as a replay", op.Key, a.Outcome)
	}
}

// wantWired ends the test unless calls of those kinds came by: else it would see nothing.
func (t *trial) wantWired(capability, how string, ops ...Op) {
	t.Helper()
	if t.world.count(ops...) == 0 {
		t.Fatalf("oncetest: Capabilities.%s is declared, and no call came by: %s", capability, how)
	}
}

func (t *trial) wantEffectFaults() {
	t.Helper()
	t.wantWired("EffectFaults", "pass every effect through Faults.Effect, or a Gateway with Faults.Plan", OpEffect)
}

func (t *trial) wantStoreFaults() {
	t.Helper()
	var store []Op
	for op := OpClaim; op < OpEffect; op++ {
		if op != OpIdentity { // which comes once, and is no call of an operation
			store = append(store, op)
		}
	}
	t.wantWired("StoreFaults", "wrap the store by FaultStore or FaultTxStore with Faults.Plan", store...)
}

// logTrace logs the trace of a failure, once.
func (t *trial) logTrace(deliveries map[int]bool) {
	t.Helper()
	if t.logged {
		return
	}
	t.logged = true
	var b strings.Builder
	events := t.world.traceOf(deliveries)
	const tail = 200
	if len(events) > tail {
		fmt.Fprintf(&b, "\n(%d lines before)", len(events)-tail)
		events = events[len(events)-tail:]
	}
	for _, e := range events {
		b.WriteString("\n" + e.String())
	}
	t.Logf("what was sent and what failed:%s", b.String())
}
