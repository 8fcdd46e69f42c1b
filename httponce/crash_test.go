package httponce_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
)

// Crash points: every store call and the effect of one request are numbered. For each, and for each kind of failure,
// the request is sent to a process that fails there, and then to fresh ones to its end. The required result depends on
// the mode.

// wrong is a way to go wrong at a point.
type wrong uint8

const (
	failBefore wrong = iota // it is not done, and the process goes on
	failAfter               // it is done, its answer is lost, and the process goes on
	hangBefore              // as failBefore, when the caller's patience has ended
	hangAfter
	dieBefore // it is not done, and the process is gone without an answer
	dieAfter
	wrongs
)

func (w wrong) String() string {
	return [...]string{"fail before", "fail after", "hang before", "hang after", "die before", "die after"}[w]
}

// process is one life of a server.
type process struct {
	mu   sync.Mutex
	at   int // the point where it goes wrong; -1 for none
	how  wrong
	seen []oncetest.Op
	dead bool
}

func (p *process) plan(c oncetest.Call) oncetest.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return oncetest.FailBefore
	}
	n := len(p.seen)
	p.seen = append(p.seen, c.Op)
	if n != p.at {
		return oncetest.Pass
	}
	p.dead = p.how >= dieBefore
	return [...]oncetest.Fault{oncetest.FailBefore, oncetest.FailAfter, oncetest.HangBefore, oncetest.HangAfter, oncetest.FailBefore, oncetest.FailAfter}[p.how]
}

// crashed is a service that outlives its processes.
type crashed struct {
	mode    oncetest.Mode
	mute    everonce.Outcome // what its handler's 502 means
	start   func(*process) http.Handler
	effects func(oncetest.Operation) int
}

// crashes are the services by name, each built anew for every point.
func crashes(tb testing.TB) map[string]func() crashed {
	tb.Helper()
	guarded := func(policy everonce.Policy, mode oncetest.Mode, deduplicates bool) func() crashed {
		return func() crashed {
			p := newPayments(policy, deduplicates)
			return crashed{
				mode: mode, mute: p.muteMeans(),
				start:   func(proc *process) http.Handler { h, _ := p.serve(tb, proc.plan); return h },
				effects: func(op oncetest.Operation) int { return len(p.gateway.Requested(p.about(op))) },
			}
		}
	}
	transactional := func(optimistic bool) func() crashed {
		return func() crashed {
			x := transactions{mapdb.New(), optimistic}
			return crashed{
				mode: oncetest.Transactional, mute: everonce.Failed,
				start: func(proc *process) http.Handler {
					return x.serve(tb, proc.plan, func(_ context.Context, _ string, effect func() error) error { return effect() })
				},
				effects: func(op oncetest.Operation) int {
					if n := x.db.Held(); n > 0 {
						tb.Errorf("%d transactions were left open", n)
					}
					return x.db.Count(x.name(op))
				},
			}
		}
	}
	return map[string]func() crashed{
		"refuse":    guarded(everonce.Refuse, oncetest.Refuse, false),
		"reexecute": guarded(everonce.Reexecute, oncetest.Reexecute, true),
		"reconcile": guarded(everonce.Reconcile, oncetest.Reconcile, false),
		"handletx":  transactional(false), "handletx optimistic": transactional(true),
	}
}

var crashedOperation = oncetest.Operation{Key: "k", Amount: 7, Client: "client-1"}

// send delivers the operation to a process. A dead process gives no answer.
func (c *crashed) send(p *process) (a oncetest.Answer, heard bool) {
	w := httptest.NewRecorder()
	c.start(p).ServeHTTP(w, request(context.Background(), crashedOperation))
	return delivered(w.Result(), c.mute), !p.dead
}

func isSuccess(o everonce.Outcome) bool { return o == everonce.Executed || o == everonce.Replayed }

// finish sends until the answer is final, and checks that a client that got a success gets the same again.
func (c *crashed) finish(t *testing.T, name string, first oncetest.Answer, heard bool) (last oncetest.Answer, effects int) {
	t.Helper()
	for range 10 {
		a, _ := c.send(&process{at: -1})
		if heard && isSuccess(first.Outcome) && (a.Outcome != everonce.Replayed && c.mode != oncetest.Refuse || isSuccess(a.Outcome) && a.Result != first.Result) {
			t.Errorf("%s: it was answered %v (%v), and then %v (%v)", name, first.Outcome, first.Result, a.Outcome, a.Result)
		}
		if isSuccess(a.Outcome) {
			if last.Outcome == everonce.Executed && (a.Outcome != everonce.Replayed || a.Result != last.Result) {
				t.Errorf("%s: executed, and then %v (%v)", name, a.Outcome, a.Result)
			}
			if last = a; a.Outcome == everonce.Replayed {
				return last, c.effects(crashedOperation)
			}
			continue
		}
		if last = a; a.Outcome == everonce.Unknown && c.mode == oncetest.Refuse {
			return last, c.effects(crashedOperation)
		}
		time.Sleep(31 * time.Second) // a lease
	}
	t.Errorf("%s: there is no final answer, the last is %v (%v)", name, last.Outcome, last.Err)
	return last, c.effects(crashedOperation)
}

// points returns what is numbered in a life in which nothing goes wrong.
func points(t *testing.T, build func() crashed) []oncetest.Op {
	t.Helper()
	c, p := build(), &process{at: -1}
	if a, _ := c.send(p); a.Outcome != everonce.Executed {
		t.Fatalf("with nothing failing it was answered %v (%v)", a.Outcome, a.Err)
	}
	if len(p.seen) < 2 {
		t.Fatalf("only %d points were numbered: %v", len(p.seen), p.seen)
	}
	return p.seen
}

// mayBeUnknown reports whether a fault at that point may leave the outcome unknown: the claim was sent, and the
// completion was not written; and the engine could not mend it, as it does where only a call of the store failed.
func mayBeUnknown(op oncetest.Op, how wrong) bool {
	switch op {
	case oncetest.OpIdentity:
		return false
	case oncetest.OpClaim:
		return how == dieAfter
	case oncetest.OpComplete:
		return how == dieBefore
	case oncetest.OpEffect:
		return true
	}
	return how >= dieBefore
}

func TestCrashPoints(t *testing.T) {
	for name, build := range crashes(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := points(t, build)
				for at, op := range all {
					for how := range wrongs {
						c, p := build(), &process{at: at, how: how}
						what := fmt.Sprintf("%v at %d (%v) of %v", how, at, op, all)
						first, heard := c.send(p)
						last, effects := c.finish(t, what, first, heard)
						c.judge(t, what, last, effects)
						if last.Outcome == everonce.Unknown && !mayBeUnknown(op, how) {
							t.Errorf("%s: its outcome is unknown", what)
						}
					}
				}
			})
		})
	}
}

// judge is the oracle.
func (c *crashed) judge(t *testing.T, what string, last oncetest.Answer, effects int) {
	t.Helper()
	switch {
	case isSuccess(last.Outcome) && effects != 1:
		t.Errorf("%s: answered %v, with %d effects", what, last.Outcome, effects)
	case last.Outcome == everonce.Unknown && (c.mode != oncetest.Refuse || effects > 1):
		t.Errorf("%s: answered unknown, with %d effects", what, effects)
	}
}

// Whatever the first process does, the second may fail as well.
func TestCrashPointsTwice(t *testing.T) {
	for name, build := range crashes(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := points(t, build)
				for at := range all {
					for _, how := range []wrong{failAfter, dieBefore, dieAfter} {
						for then := range 4 {
							for _, next := range []wrong{failBefore, failAfter, dieAfter} {
								c := build()
								what := fmt.Sprintf("%v at %d of %v, then %v at %d", how, at, all, next, then)
								first, heard := c.send(&process{at: at, how: how})
								time.Sleep(31 * time.Second)
								if second, heardToo := c.send(&process{at: then, how: next}); heardToo && isSuccess(second.Outcome) {
									if heard && isSuccess(first.Outcome) && first.Result != second.Result {
										t.Errorf("%s: it was answered %v, and then %v", what, first.Result, second.Result)
									}
									first, heard = second, true
								}
								last, effects := c.finish(t, what, first, heard)
								c.judge(t, what, last, effects)
							}
						}
					}
				}
			})
		})
	}
}

// Without deduplication at the other side, running again must show a double somewhere: or the enumeration would be
// blind to one.
func TestCrashPointsSeeDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doubles := 0
		build := func() crashed {
			p := newPayments(everonce.Reexecute, false)
			return crashed{
				mode: oncetest.Reexecute, mute: everonce.Failed,
				start:   func(proc *process) http.Handler { h, _ := p.serve(t, proc.plan); return h },
				effects: func(op oncetest.Operation) int { return len(p.gateway.Requested(p.about(op))) },
			}
		}
		for at := range points(t, build) {
			for how := range wrongs {
				c := build()
				first, heard := c.send(&process{at: at, how: how})
				if _, effects := c.finish(t, "", first, heard); effects > 1 {
					doubles++
				}
			}
		}
		if doubles == 0 {
			t.Error("no crash point led to a double effect: the test is blind")
		}
	})
}
