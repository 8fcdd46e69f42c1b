package e2e

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
)

// gateway is the world outside of the worker: it counts what took effect, it knows which operations
// are in flight, and it holds calls back so that a kill falls into the middle of them.
type gateway struct {
	mu       sync.Mutex
	rng      *rand.Rand
	inFlight map[int]bool   // operations begun and not ended by the living worker
	outcomes map[int]string // the latest answer that the worker got for an operation
	done     map[int]bool   // operations of which a worker has heard that they are done
	undone   []int          // the ones among them that were executed again after that, or are unknown
	calls    map[string]int // effects per key of a gateway that does not deduplicate
	once     map[string]int // effects per key of one that does
	free     int            // calls that pass before the gate closes
	blocked  int            // calls in the handler, held
	gate     chan struct{}  // closed when the held calls may go on
	opened   bool
	changed  chan struct{} // closed at every change, and made anew
	replays  int
	answers  int
}

func newGateway(seed uint64) *gateway {
	return &gateway{
		rng: rand.New(rand.NewPCG(seed, 1)), inFlight: map[int]bool{}, outcomes: map[int]string{}, done: map[int]bool{},
		calls: map[string]int{}, once: map[string]int{}, gate: make(chan struct{}), changed: make(chan struct{}),
	}
}

// arm closes the gate after that many calls, for a worker that starts; a negative number never does.
func (g *gateway) arm(free int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free, g.gate, g.opened, g.inFlight = free, make(chan struct{}), false, map[int]bool{}
	g.notify()
}

// open lets the held calls go: of a worker that is dead.
func (g *gateway) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.opened = true
		close(g.gate)
	}
	g.notify()
}

func (g *gateway) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// state returns how many operations are in flight, how many of them are held here, and a channel that
// is closed when that changes.
func (g *gateway) state() (inFlight, held int, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inFlight), g.blocked, g.changed
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	op, _ := strconv.Atoi(q.Get("op"))
	g.remember(r.URL.Path, op, q.Get("outcome"))
	switch r.URL.Path {
	case "/begin":
		g.mu.Lock()
		g.inFlight[op] = true
		g.notify()
		g.mu.Unlock()
	case "/end":
		g.mu.Lock()
		delete(g.inFlight, op)
		g.outcomes[op] = q.Get("outcome")
		if g.answers++; q.Get("outcome") == "replayed" {
			g.replays++
		}
		g.notify()
		g.mu.Unlock()
	case "/touch": // inside a transaction: holds it open, and has no effect
		g.hold()
	case "/charge":
		g.charge(q.Get("key"))
	}
	w.WriteHeader(http.StatusNoContent)
}

// remember holds the service to its word: what it has called done is done.
func (g *gateway) remember(path string, op int, outcome string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.done[op] && (path == "/touch" || path == "/charge" || outcome == "unknown"):
		g.undone = append(g.undone, op)
	case outcome == "executed" || outcome == "replayed":
		g.done[op] = true
	}
}

// charge takes effect before it is held, or after: which, is drawn.
func (g *gateway) charge(key string) {
	g.mu.Lock()
	early := g.rng.IntN(2) == 0
	g.mu.Unlock()
	if early {
		g.effect(key)
	}
	g.hold()
	if !early {
		g.effect(key)
	}
}

func (g *gateway) effect(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[key]++
	g.once[key] = 1
}

func (g *gateway) hold() {
	g.mu.Lock()
	if g.free < 0 || g.free > 0 {
		g.free--
		g.mu.Unlock()
		return
	}
	gate := g.gate
	g.blocked++
	g.notify()
	g.mu.Unlock()
	<-gate
	g.mu.Lock()
	g.blocked--
	g.notify()
	g.mu.Unlock()
}
