package oncetest

import (
	"sync"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// The tests in which deliveries overlap.

// overlap bounds how long a slow effect is held until its duplicates have come as far as they come,
// where that cannot be seen: outside of a bubble, when they wait. Nothing depends on it but how much a
// wrong system shows.
const overlap = 100 * time.Millisecond

// gate holds the effects of a test.
type gate struct {
	entered chan struct{} // closed when the first effect is held
	open    chan struct{}
	once    sync.Once
}

func (t *trial) holdEffects() *gate {
	g := &gate{entered: make(chan struct{}), open: make(chan struct{})}
	t.world.holdCalls(func(c Call) {
		if c.Op == OpEffect {
			g.once.Do(func() { close(g.entered) })
			<-g.open
		}
	})
	return g
}

// held delivers op, and the duplicates while op's effect is held: it returns the first answer, the answers to the
// duplicates, and how many of these came while the effect was held.
func (t *trial) held(op Operation, duplicates ...Operation) (first Answer, others []Answer, early int) {
	t.Helper()
	g := t.holdEffects()
	firstDone := make(chan Answer, 1)
	go func() { firstDone <- t.send(op) }()
	select {
	case <-g.entered:
	case a := <-firstDone:
		close(g.open)
		t.wantEffectFaults()
		t.Fatalf("%s was answered %v (%v) before its effect", op.Key, a.Outcome, a.Err)
	}
	type answered struct {
		i int
		a Answer
	}
	done := make(chan answered, len(duplicates))
	for i, d := range duplicates {
		go func() { done <- answered{i, t.send(d)} }()
	}
	others = make([]Answer, len(duplicates))
	var quiet <-chan time.Time
	if t.subject.Bubble {
		synctest.Wait()
	} else {
		quiet = time.After(overlap)
	}
	for waiting := true; waiting && early < len(duplicates); {
		if t.subject.Bubble {
			select {
			case d := <-done:
				others[d.i] = d.a
				early++
			default:
				waiting = false
			}
			continue
		}
		select {
		case d := <-done:
			others[d.i] = d.a
			early++
		case <-quiet:
			waiting = false
		}
	}
	close(g.open)
	for range len(duplicates) - early {
		d := <-done
		others[d.i] = d.a
	}
	return <-firstDone, others, early
}

// settleAll sends again the operations that are in progress, and compares: one effect, one answer, one execution.
func (t *trial) settleAll(op Operation, answers []Answer) {
	t.Helper()
	executed := 0
	var first *Answer
	for i := range answers {
		if answers[i].Outcome == everonce.Executed {
			executed++
		}
		if answers[i].isDone() && first == nil {
			first = &answers[i]
		}
	}
	if executed > 1 && t.subject.Capabilities.Marks {
		t.Errorf("%s: %d of %d concurrent deliveries say that they executed it", op.Key, executed, len(answers))
	}
	if first == nil {
		t.Errorf("%s: none of %d concurrent deliveries was done, with nothing failing; the first was answered %v (%v)",
			op.Key, len(answers), answers[0].Outcome, answers[0].Err)
		return
	}
	for _, a := range answers {
		if !a.isDone() {
			t.mustComeBack(op, a)
			a = t.send(op)
		}
		t.wantSame(op, *first, a)
	}
	t.wantEffects(op, 1)
}

// mustComeBack fails unless the answer tells a duplicate that another delivery is at work.
func (t *trial) mustComeBack(op Operation, a Answer) {
	t.Helper()
	if a.Outcome != everonce.InProgress {
		t.Errorf("%s: a concurrent duplicate was answered %v (%v), want %v or the result", op.Key, a.Outcome, a.Err, everonce.InProgress)
	}
}

// atOnce delivers all, as nearly at once as goroutines start.
func (t *trial) atOnce(ops ...Operation) []Answer {
	t.Helper()
	answers := make([]Answer, len(ops))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, op := range ops {
		wg.Go(func() {
			<-start
			answers[i] = t.send(op)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

func threeConcurrent(t *trial) {
	for range 20 { // each a chance for a wrong one to show
		op := t.operation()
		t.settleAll(op, t.atOnce(op, op, op))
	}
}

func fiveConcurrent(t *trial) {
	op := t.operation()
	first, others, _ := t.held(op, op, op, op, op)
	t.settleAll(op, append(others, first))
}

func inFlight(t *trial) {
	op := t.operation()
	first, others, early := t.held(op, op)
	if first.Outcome == everonce.InProgress && others[0].isSuccess() { // overtaken: one that claims when its work is done lets both work
		first = t.send(op)
	}
	if !first.isSuccess() {
		t.Fatalf("%s was answered %v (%v) while a duplicate came, with nothing failing", op.Key, first.Outcome, first.Err)
	}
	if early > 0 {
		t.mustComeBack(op, others[0])
	}
	if !others[0].isDone() {
		t.mustComeBack(op, others[0])
		others[0] = t.send(op) // the poll that the answer asked for
	}
	t.wantSame(op, first, others[0])
	t.wantEffects(op, 1)
}

// inFlightMismatch accepts either of two requests with one key that overlap, and then must refuse the other.
func inFlightMismatch(t *trial) {
	op := t.operation()
	other := op
	other.Amount += 1000
	first, others, _ := t.held(op, other)
	pair := []Operation{op, other}
	answers := []Answer{first, others[0]}
	taken, refused := 0, 0
	for i, a := range answers {
		if a.Outcome == everonce.InProgress {
			answers[i] = t.send(pair[i])
		}
	}
	for _, a := range answers {
		switch {
		case a.isSuccess():
			taken++
		case a.Outcome == everonce.Mismatch:
			refused++
		}
	}
	if taken != 1 || refused != 1 {
		t.Errorf("%s: two amounts with this key, at once, were answered %v and %v: one must be done, and the other %v",
			op.Key, answers[0].Outcome, answers[1].Outcome, everonce.Mismatch)
	}
	t.wantEffects(op, 1)
}

func manyAtOnce(t *trial) {
	const n, copies = 8, 4
	var all []Operation
	ops := make([]Operation, n)
	for i := range ops {
		ops[i] = t.operation()
	}
	for range copies {
		all = append(all, ops...)
	}
	t.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	of := map[string][]Answer{}
	for i, a := range t.atOnce(all...) {
		of[all[i].Key] = append(of[all[i].Key], a)
	}
	for _, op := range ops {
		t.settleAll(op, of[op.Key])
	}
}
