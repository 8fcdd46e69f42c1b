package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The phases of a message in a worker's hand, in their order.
const (
	phaseReceived = "received" // nothing is done yet
	phaseWorking  = "working"  // its handler runs, and has done nothing yet
	phaseWorked   = "worked"   // the effect was made, and is not recorded
	phaseRecorded = "recorded" // all is durable, and not acknowledged
)

var messagePhases = []string{phaseReceived, phaseWorking, phaseWorked, phaseRecorded}

// ahead is how many messages one way of consuming may be ahead of the others, so that all are in mid-stream whenever
// something is killed.
const ahead = 20

// referee gets every phase of every message. It holds the calls of one phase back, so that a kill falls into it; and it
// is the gateway of the guarded consumers.
type referee struct {
	mu      sync.Mutex
	up      int           // workers that have begun to consume
	changed chan struct{} // closed at every change that somebody may wait for, and made anew
	ways    map[string]*way
	open    map[holder]int            // messages in progress
	held    map[holder]int            // calls that are held back
	charges map[charge]map[string]int // calls of the gateway, by downstream key
	point   int                       // messages of the first way, at which the gate closes; negative: never
	limit   int                       // messages that may be sent
	phase   string                    // whose calls it holds
	closed  bool
	struck  bool            // something was killed, and may not be mended
	gate    int             // counts how often it was closed
	dead    map[string]bool // workers that were killed
}

// holder is a way of consuming in one worker.
type holder struct{ worker, way string }

// charge is what the gateway is asked for.
type charge struct {
	way string
	op  int
}

// way is the state of one way of consuming.
type way struct {
	seen     map[int]bool // messages that were received
	settled  map[int]bool // messages that were acknowledged, or became dead letters, or were about to
	done     map[int]bool // messages that were done, as their verdict says
	undone   []int        // the ones among them that were handled again after that, or are unknown
	received int          // deliveries, and messages handled again without one
	again    int          // deliveries that the broker flagged as redelivered
	outcomes map[string]int
}

func newReferee(ways []string) *referee {
	r := &referee{
		changed: make(chan struct{}), ways: map[string]*way{}, open: map[holder]int{}, held: map[holder]int{},
		charges: map[charge]map[string]int{}, point: -1, dead: map[string]bool{},
	}
	for _, name := range ways {
		r.ways[name] = &way{seen: map[int]bool{}, settled: map[int]bool{}, done: map[int]bool{}, outcomes: map[string]int{}}
	}
	return r
}

func (r *referee) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// until waits, with r.mu held, until what is asked for holds.
func (r *referee) until(ctx context.Context, holds func() bool) error {
	for !holds() {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// wait is until, for tests.
func (r *referee) wait(ctx context.Context, holds func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until(ctx, holds)
}

func (r *referee) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/up":
		r.up++
		r.notify()
	case "/charge":
		of := charge{q.Get("way"), number(q, "op")}
		if r.charges[of] == nil {
			r.charges[of] = map[string]int{}
		}
		r.charges[of][q.Get("key")]++
	default:
		r.enter(req.Context(), q)
		if r.ways[q.Get("way")].done[number(q, "op")] {
			w.Header().Set(doneHeader, "1")
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// doneHeader says in the answer to a phase that the message was done by then, as a verdict has said.
const doneHeader = "Done"

func number(q url.Values, name string) int {
	n, _ := strconv.Atoi(q.Get(name)) //nolint:errcheck // the worker wrote it
	return n
}

// enter notes that a message has come to a phase, and holds it there if that is asked for.
func (r *referee) enter(ctx context.Context, q url.Values) {
	name, phase, op := q.Get("way"), q.Get("phase"), number(q, "op")
	h := holder{q.Get("worker"), name}
	if r.dead[h.worker] {
		return
	}
	w := r.ways[name]
	acked := q.Get("ack") != ""
	switch phase {
	case phaseReceived:
		r.open[h]++
		w.received++
		if q.Get("again") != "" {
			w.again++
		}
		w.seen[op] = true
		r.mayClose()
		r.notify()
		if r.until(ctx, func() bool { return r.closed || !r.isAhead(w) }) != nil {
			return // it was killed
		}
	case phaseWorking:
		// In a transaction a claim writes nothing. The claim of a copy that arrived before the other one committed may be
		// granted just after that: its work is rolled back.
		if w.done[op] && (name != wayTx || q.Get("after") != "") {
			w.undone = append(w.undone, op)
		}
	case phaseRecorded:
		outcome := q.Get("outcome")
		w.outcomes[outcome]++
		switch {
		case q.Get("after") != "" && (outcome == "unknown" || outcome == "executed"): // a phase from before the end may arrive after it
			w.undone = append(w.undone, op)
		case acked:
			w.done[op] = true
		}
		if acked || q.Get("dead") != "" {
			w.settled[op] = true
		}
		r.notify()
	}
	if r.closed && r.phase == phase && (phase != phaseRecorded || acked) {
		r.hold(ctx, h)
	}
	if phase == phaseRecorded && !r.dead[h.worker] {
		r.open[h]--
		r.notify()
	}
}

// hold returns when the gate was opened, or the caller was killed.
func (r *referee) hold(ctx context.Context, h holder) {
	gate := r.gate
	r.held[h]++
	r.notify()
	_ = r.until(ctx, func() bool { return !r.closed || r.gate != gate }) //nolint:errcheck // killed, or let go
	if r.closed && r.gate == gate {                                      // otherwise release has forgotten it
		r.held[h]--
	}
}

// isAhead tells whether a way has received more than the others, by as much as is allowed. Where something was killed
// none is: the others may come no further before it is mended, and it is mended when each way has felt it.
func (r *referee) isAhead(w *way) bool {
	if r.struck {
		return false
	}
	least := len(w.seen)
	for _, other := range r.ways {
		least = min(least, len(other.seen))
	}
	return len(w.seen) > least+ahead
}

func (r *referee) mayClose() {
	if !r.closed && r.point >= 0 && r.progress() >= r.point {
		r.point, r.closed = -1, true
		r.gate++
	}
}

// progress is how many messages each way has received at the least. The caller holds r.mu.
func (r *referee) progress() int {
	least := -1
	for _, w := range r.ways {
		if least < 0 || len(w.seen) < least {
			least = len(w.seen)
		}
	}
	return least
}

// beyondKill is how many messages may be sent beyond a kill, before it and after it: enough to be in flight then, and
// too few for the stream to be over before a server is back.
const beyondKill = 80

// arm closes the gate, for the calls of a phase, once so many messages were received.
func (r *referee) arm(point int, phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.point, r.phase, r.limit, r.struck = point, phase, max(point, r.progress())+beyondKill, false
	r.mayClose()
	r.notify()
}

// stopped tells whether the gate is closed, and calls of every way are held: only the named worker's, if it is named.
// It is called with r.mu held.
func (r *referee) stopped(worker string) func() bool {
	return func() bool {
		if !r.closed {
			return false
		}
		for name := range r.ways {
			n := 0
			for h, held := range r.held {
				if h.way == name && (worker == "" || worker == h.worker) {
					n += held
				}
			}
			if n == 0 {
				return false
			}
		}
		return true
	}
}

// inFlight is how many messages are in progress: only the named worker's, if it is named.
func (r *referee) inFlight(worker string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for h, open := range r.open {
		if worker == "" || worker == h.worker {
			n += open
		}
	}
	return n
}

// lift lets all messages be sent.
func (r *referee) lift() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = math.MaxInt
	r.notify()
}

// release lets the held calls go on, and forgets the messages of a dead worker.
func (r *referee) release(dead string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.struck = false, true
	r.limit = r.progress() + beyondKill
	r.dead[dead] = true
	clear(r.held) // who was held may not have gone on when the gate closes again
	maps.DeleteFunc(r.open, func(h holder, _ int) bool { return h.worker == dead })
	r.notify()
}

// redelivered is how many deliveries to a way the broker has flagged. The caller holds r.mu.
func (r *referee) redelivered(way string) int { return r.ways[way].again }

// repeated is how many deliveries to a way were repetitions. The caller holds r.mu.
func (r *referee) repeated(way string) int { return r.ways[way].received - len(r.ways[way].seen) }

// charged is how often the gateway was charged for a message.
func (r *referee) charged(way string, op int) (keys, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.charges[charge{way, op}] {
		calls += n
	}
	return len(r.charges[charge{way, op}]), calls
}

// failed is how often a way has found a store that did not answer. The caller holds r.mu.
func (r *referee) failed(way string) int {
	n := 0
	for outcome, times := range r.ways[way].outcomes {
		switch outcome {
		case "executed", "replayed", "elided", "in_progress":
		default:
			n += times
		}
	}
	return n
}

// more returns whether a count has grown for each of these ways since it was called. It is called with r.mu held.
func (r *referee) more(count func(way string) int, ways ...string) (has func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[string]int{}
	for _, way := range ways {
		before[way] = count(way)
	}
	return func() bool {
		for way, n := range before {
			if count(way) == n {
				return false
			}
		}
		return true
	}
}

// String is for people.
func (r *referee) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.ways)) {
		w := r.ways[name]
		lines = append(lines, fmt.Sprintf("%s: %d received, %d of them redelivered, %d messages settled; %v", name, w.received, w.again, len(w.settled), w.outcomes))
	}
	return strings.Join(lines, "\n")
}

// points draws one point in each hundred messages, and a phase for each, so that all phases have their turn.
func points(rng *rand.Rand, messages int) (at []int, phases []string) {
	turn := rng.Perm(len(messagePhases))
	for i := range messages / 100 {
		at = append(at, 100*i+1+rng.IntN(100-beyondKill)) // so that enough are left for the last
		phases = append(phases, messagePhases[turn[i%len(turn)]])
	}
	return at, phases
}

// Effects before a message was begun are held against a verdict. Effects of another worker meanwhile are not, because
// they may have happened after that verdict, and have been reported before it.
func TestRefereeHoldsAVerdictAgainstWhatWasDoneBefore(t *testing.T) {
	r := newReferee([]string{wayRefused})
	tell := func(op int, phase, more string) (done bool) {
		rec := httptest.NewRecorder()
		r.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/phase?worker=w&way=%s&op=%d&phase=%s&%s", wayRefused, op, phase, more), nil))
		return rec.Header().Get(doneHeader) != ""
	}
	tell(1, phaseReceived, "")
	if tell(1, phaseReceived, "") {
		t.Error("done before anything was")
	}
	tell(1, phaseRecorded, "ack=1&outcome=executed")
	tell(1, phaseRecorded, "outcome=unknown&dead=1")
	if got := r.ways[wayRefused].undone; len(got) != 0 {
		t.Errorf("a copy that was begun before is held against it: %v", got)
	}
	if !tell(1, phaseReceived, "") {
		t.Error("not done after it was")
	}
	tell(1, phaseRecorded, "after=1&outcome=unknown&dead=1")
	tell(1, phaseWorking, "")
	tell(1, phaseRecorded, "after=1&ack=1&outcome=executed")
	if got := r.ways[wayRefused].undone; !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("undone %v, want what is unknown, what is handled again, and what was", got)
	}
}

// In a transaction, whose claim writes nothing, a copy that came before another one was done may be begun after that,
// and is rolled back. One that came later may not.
func TestRefereeLetsATransactionBeginInVain(t *testing.T) {
	r := newReferee([]string{wayTx})
	tell := func(phase, more string) {
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, fmt.Sprintf("/phase?worker=w&way=%s&op=1&phase=%s&%s", wayTx, phase, more), nil))
	}
	tell(phaseReceived, "")
	tell(phaseReceived, "")
	tell(phaseRecorded, "ack=1&outcome=executed")
	tell(phaseWorking, "")
	tell(phaseRecorded, "ack=1&outcome=replayed")
	if got := r.ways[wayTx].undone; len(got) != 0 {
		t.Errorf("a copy that came before is held against it: %v", got)
	}
	tell(phaseReceived, "")
	tell(phaseWorking, "after=1")
	if got := r.ways[wayTx].undone; !slices.Equal(got, []int{1}) {
		t.Errorf("undone %v, want what was begun afterwards", got)
	}
}
