package oncetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Faults is how a test controls the system that Subject.New builds. Pass the store through [FaultStore] or
// [FaultTxStore] with its Plan, and each effect through Effect, or through a [Gateway] with its Plan. In most tests
// nothing fails; in the others Faults decides what does.
//
// A system whose process "died" keeps its Faults, and all its later calls are refused: its effects do not happen,
// and its store calls are not made. The system that System.Restart builds gets new Faults.
//
// With the zero value nothing fails: use it to test the same system without [Run].
type Faults struct {
	world *world
	dead  atomic.Bool
}

// Plan returns the plan of the test.
func (f *Faults) Plan() Plan {
	return func(c Call) Fault {
		if f.world == nil {
			return Pass
		}
		if f.dead.Load() {
			return gone
		}
		switch fault := f.world.decide(c); fault {
		case dieBefore:
			f.dead.Store(true)
			return gone
		case dieAfter:
			f.dead.Store(true)
			return FailAfter
		default:
			return fault
		}
	}
}

// Effect runs an effect, or lets it fail before or after it took hold. id names the effect: it is the same in every
// attempt of an operation, and another one for every other effect; a downstream key, for example.
//
// An error that proves that nothing took hold, as "connection refused" does, is marked with [everonce.NotDone]; the
// other errors prove nothing, like a timeout.
func (f *Faults) Effect(ctx context.Context, id string, effect func() error) error {
	c := Call{Op: OpEffect, Key: id}
	_, err := suffer(ctx, c, f.Plan()(c), func() (struct{}, error) { return struct{}{}, effect() })
	return err
}

// world is what the lives of one system have in common: the plan of the test, and what has happened.
type world struct {
	mu       sync.Mutex
	script   func(Call) Fault // of the test; nil lets all pass
	hold     func(Call)       // may block a call before it is decided
	delivery int
	calls    [opEnd]int // in this delivery
	faulted  bool       // in this delivery, where it can leave the outcome unknown
	trace    []event

	// Over the whole test:
	seen     [opEnd]int
	injected map[injection]int
	effects  map[string]int // how often each effect took hold
}

// injection is a kind of fault at a kind of place.
type injection struct {
	effect bool
	fault  Fault
}

// event is one line of a trace.
type event struct {
	delivery int
	what     string
}

func (e event) String() string { return fmt.Sprintf("%4d  %s", e.delivery, e.what) }

func newWorld() *world {
	return &world{injected: make(map[injection]int), effects: make(map[string]int)}
}

// decide decides one call and adds it to the trace. Renewals run at their own times in separate goroutines: they
// are not in the trace.
func (w *world) decide(c Call) Fault {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		hold(c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[c.Op]++
	w.calls[c.Op]++
	c.N = w.calls[c.Op]
	fault := Pass
	if w.script != nil {
		fault = w.script(c)
	}
	if fault != Pass {
		w.injected[injection{c.Op == OpEffect, fault}]++
		w.faulted = w.faulted || canLeaveUnknown(c.Op)
	}
	if c.Op == OpEffect && fault.takesHold() {
		w.effects[c.Key]++
	}
	if c.Op != OpRenew {
		w.trace = append(w.trace, event{w.delivery, fmt.Sprintf("%v %d: %v", c.Op, c.N, fault)})
	}
	return fault
}

// canLeaveUnknown reports whether a fault of that call falls between the sending of the claim and the
// completion.
func canLeaveUnknown(op Op) bool {
	switch op {
	case OpGet, OpPurge, OpList, OpDeleteScope, OpHealth, OpCheckWrite, OpIdentity:
		return false
	}
	return true
}

// begin opens a delivery.
func (w *world) begin(op Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delivery++
	w.calls, w.faulted = [opEnd]int{}, false
	w.trace = append(w.trace, event{w.delivery, "deliver " + op.Key})
}

// end closes it, and reports whether a fault in it can have left the outcome unknown.
func (w *world) end(a Answer) (faulted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, event{w.delivery, "answer: " + a.Outcome.String()})
	return w.faulted
}

// run sets the plan of the test.
func (w *world) run(script func(Call) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = script
}

func (w *world) holdCalls(hold func(Call)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = hold
}

// count returns how often a call of that kind came by.
func (w *world) count(ops ...Op) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range ops {
		n += w.seen[op]
	}
	return n
}

// most returns how often the effect that took hold most did: once, unless one was repeated.
func (w *world) most() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, times := range w.effects {
		n = max(n, times)
	}
	return n
}

// traceOf returns the trace of some deliveries, or of all.
func (w *world) traceOf(deliveries map[int]bool) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []event
	for _, e := range w.trace {
		if deliveries == nil || deliveries[e.delivery] {
			events = append(events, e)
		}
	}
	return events
}
