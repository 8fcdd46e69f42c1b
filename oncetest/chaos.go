package oncetest

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/everonce/everonce"
)

// The tests in which much fails, by chance that a seed repeats.

// Chances of a call to fail, before it is done or after, and how much is sent.
const (
	storeFails       = 0.3
	effectFails      = 0.2
	chaosOperations  = 100 // the default of Subject.Operations
	oneSentThatOften = 100 // the first operation; the others are sent until they end, and once more
)

func chaosEffect(t *trial) { t.chaos(0, effectFails) }
func chaosStore(t *trial)  { t.chaos(storeFails, 0) }
func chaosBoth(t *trial)   { t.chaos(storeFails, effectFails) }

// course is one operation on its way through the chaos.
type course struct {
	op         Operation
	sent       int
	stuck      int // deliveries in a row without a final answer
	executed   int
	final      *Answer
	after      int // deliveries after the final answer
	faulted    bool
	deliveries map[int]bool
}

// chaos sends operations in an order of chance, while calls fail by chance. Each call's chance is drawn from
// the seed, the delivery and the call's number in it, so that nothing else changes what fails. Where by
// chance a kind of fault has not come, some more operations are sent.
func (t *trial) chaos(store, effect float64) {
	t.Helper()
	t.world.run(func(c Call) Fault {
		chance := store
		if c.Op == OpEffect {
			chance = effect
		}
		return draw(t.subject.Seed, callNumber(t.world.delivery, c), chance, []Fault{FailBefore, FailAfter})
	})
	courses := t.sendAll(t.subject.Operations, oneSentThatOften)
	for more := 0; more < 10 && t.blind(store > 0, effect > 0) != "" && !t.Failed(); more++ {
		courses = append(courses, t.sendAll(10, 1)...)
	}
	t.world.run(nil)
	for _, c := range courses {
		if t.Failed() {
			return
		}
		last, _ := t.finish(c.op)
		t.compare(c, last)
		t.judge(c.op, last, c.faulted)
		if t.Failed() {
			t.logTrace(c.deliveries)
		}
	}
	if store > 0 {
		t.wantStoreFaults()
	}
	if effect > 0 {
		t.wantEffectFaults()
	}
	if blind := t.blind(store > 0, effect > 0); blind != "" {
		t.Errorf("oncetest: the chaos was blind: %s", blind)
	}
}

// sendAll sends n new operations until they end and once more, the first of them at least so often.
func (t *trial) sendAll(n, often int) []*course {
	t.Helper()
	courses := make([]*course, n)
	for i := range courses {
		courses[i] = &course{op: t.operation(), deliveries: map[int]bool{}}
	}
	for open := slices.Clone(courses); len(open) > 0; {
		i := t.rng.IntN(len(open))
		c := open[i]
		t.pass(c)
		if t.Failed() {
			t.logTrace(c.deliveries)
			return courses
		}
		if c.final != nil && c.after > 0 && (c != courses[0] || c.sent >= often) {
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return courses
}

// callNumber numbers a call of the whole run.
func callNumber(delivery int, c Call) uint64 {
	h := fnv.New64a()
	for _, v := range [...]int{delivery, int(c.Op), c.N} {
		h.Write([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}) //nolint:gosec // the lower bytes are wanted
	}
	return h.Sum64()
}

// pass delivers an operation once.
func (t *trial) pass(c *course) {
	t.Helper()
	a, faulted := t.deliver(c.op)
	c.sent++
	c.deliveries[t.world.delivery] = true
	c.faulted = c.faulted || faulted
	if a.Outcome == everonce.Executed {
		c.executed++
	}
	if n := t.effects(c.op); a.isSuccess() && n != 1 {
		t.Errorf("%s: answered %v, and took effect %d times, want 1", c.op.Key, a.Outcome, n)
	}
	if !t.isFinal(a) {
		if c.stuck++; c.stuck > most {
			t.Errorf("%s: there is no final answer in %d deliveries, the last is %v (%v)", c.op.Key, c.stuck, a.Outcome, a.Err)
		}
		t.comeBack(c.op, a)
		return
	}
	c.stuck = 0
	if c.final == nil {
		c.final = &a
		return
	}
	c.after++
	t.compare(c, a)
}

// compare compares a final answer with the first final one.
func (t *trial) compare(c *course, a Answer) {
	t.Helper()
	if c.final.isDone() {
		t.wantSame(c.op, *c.final, a)
		t.wantMarked(c.op, a)
	} else if a.Outcome != everonce.Unknown {
		t.Errorf("%s: its outcome was unknown, and then it was answered %v (%v)", c.op.Key, a.Outcome, a.Err)
	}
	if c.executed > 1 && t.subject.Capabilities.Marks {
		t.Errorf("%s: %d deliveries say that they executed it", c.op.Key, c.executed)
	}
}

// blind says what a chaos has not seen, for one that saw no fault proves nothing; or nothing.
func (t *trial) blind(store, effect bool) string {
	t.world.mu.Lock()
	injected := maps.Clone(t.world.injected)
	t.world.mu.Unlock()
	for _, place := range []struct {
		effect, wanted bool
		name           string
	}{{false, store, "store"}, {true, effect, "effect"}} {
		for _, f := range []Fault{FailBefore, FailAfter} {
			if place.wanted && injected[injection{place.effect, f}] == 0 {
				return fmt.Sprintf("no call of the %s had the fault %q", place.name, f)
			}
		}
	}
	if effect && t.subject.Mode == Reexecute && t.world.most() < 2 {
		return "no effect was run a second time, so there was no double for the other side to find"
	}
	return ""
}
