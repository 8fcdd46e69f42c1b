package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// fault is what happens at a numbered point of a run.
type fault uint8

const (
	noFault fault = iota
	// failBefore: the call was never sent.
	failBefore
	// failAfter: it was done, and the answer is lost.
	failAfter
	// hangs: it was never sent, and nothing is heard of it until its context has ended.
	hangs
	// dieBefore and dieAfter: the process stops for good, before or after the call was done.
	dieBefore
	dieAfter
)

var faults = []fault{failBefore, failAfter, hangs, dieBefore, dieAfter}

func (f fault) String() string {
	return [...]string{"nothing", "fails before", "fails after", "hangs", "process gone before", "process gone after"}[f]
}

var (
	errInjected = errors.New("drivertest: injected failure")
	errHung     = fmt.Errorf("%w: no answer", errInjected)
)

// patience is how long a caller of the suite waits for a call of the store, and completion for all tries of a
// completion: within that the engine bounds a call, and the context of a check ends later.
const (
	patience   = 10 * time.Second
	completion = 8 * patience
)

// process numbers everything that a process does to the world outside: its store calls and its effects.
// One of them goes wrong. A process that stops for good ends each of its goroutines that still tries to
// reach the world, so that nothing more comes from it: no write, no effect, no answer.
type process struct {
	mu     sync.Mutex
	points []string // what was reached, in order
	at     int      // the point that goes wrong, from 0; -1 for none
	how    fault
	gone   bool
}

func newProcess(at int, how fault) *process { return &process{at: at, how: how} }

// run runs the process to its end: false if it is gone.
func (p *process) run(body func()) (lived bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body()
		lived = !p.isGone()
	}()
	<-done
	return lived
}

// do reaches a point.
func (p *process) do(what string, call func() error) error {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		runtime.Goexit()
	}
	how := noFault
	if len(p.points) == p.at {
		how = p.how
	}
	p.points = append(p.points, what)
	if how >= dieBefore {
		p.gone = true
	}
	p.mu.Unlock()
	switch how {
	case failBefore:
		return errInjected
	case hangs:
		return errHung
	case failAfter:
		if err := call(); err != nil {
			return err
		}
		return errInjected
	case dieBefore:
		runtime.Goexit()
	case dieAfter:
		_ = call() //nolint:errcheck // the process is gone
		runtime.Goexit()
	}
	return call()
}

func (p *process) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (p *process) reached() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.points...)
}

// faultStore is a store as one process has it. It has one optional power, the one that writes, whose call may fail
// like the others; separate checks cover the rest.
type faultStore struct {
	store driver.Store
	p     *process
}

func reach[Req, Res any](ctx context.Context, p *process, what string, req Req, call func(context.Context, Req) (Res, error)) (Res, error) {
	var res Res
	err := p.do(what, func() (err error) {
		res, err = call(ctx, req)
		return err
	})
	if err != nil {
		var none Res
		return none, waited(ctx, err)
	}
	return res, nil
}

// waited returns the error of a call: a call that hangs fails as if its context had ended, if the engine has
// bounded that context. Waiting for it would take long and show no more.
func waited(ctx context.Context, err error) error {
	if !errors.Is(err, errHung) {
		return err
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= completion {
		return context.DeadlineExceeded
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *faultStore) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	return reach(ctx, s.p, "Claim", req, s.store.Claim)
}

func (s *faultStore) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	return reach(ctx, s.p, "Complete", req, s.store.Complete)
}

func (s *faultStore) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	return reach(ctx, s.p, "Release", req, s.store.Release)
}

func (s *faultStore) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	return reach(ctx, s.p, "Renew", req, s.store.Renew)
}

func (s *faultStore) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	return reach(ctx, s.p, "SaveStep", req, s.store.SaveStep)
}

func (s *faultStore) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	return reach(ctx, s.p, "Get", req, s.store.Get)
}

func (s *faultStore) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	return reach(ctx, s.p, "Purge", req, s.store.Purge)
}

// Unwrap keeps the store's other powers: of these faultStore has only KeepIdentity.
func (s *faultStore) Unwrap() driver.Store { return s.store }

// KeepIdentity is a receiver's first call, if the store has this power.
func (s *faultStore) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (driver.KeepIdentityResult, error) {
	keeper, _ := driver.PowerOf[driver.IdentityKeeper](s.store)
	return reach(ctx, s.p, "KeepIdentity", req, keeper.KeepIdentity)
}

// gateway is the other side of an effect: it keeps the authoritative ledger.
type gateway struct {
	deduplicates bool
	mu           sync.Mutex
	calls        map[string]int // by downstream key
	effects      map[string]int
}

func newGateway(deduplicates bool) *gateway {
	return &gateway{deduplicates: deduplicates, calls: make(map[string]int), effects: make(map[string]int)}
}

// call asks for an effect, through the process that wants it.
func (g *gateway) call(p *process, key string) error {
	return p.do("effect", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls[key]++
		if !g.deduplicates || g.effects[key] == 0 {
			g.effects[key]++
		}
		return nil
	})
}

// happened reports whether the effect happened, truthfully.
func (g *gateway) happened(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.effects[key] > 0
}

// total returns how many effects there were, and on how many keys.
func (g *gateway) total() (effects, keys int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.effects {
		effects += n
	}
	return effects, len(g.effects)
}
