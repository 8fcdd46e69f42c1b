package httponce_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
)

// held is a handler that answers when it is let go.
type held struct {
	http.HandlerFunc
	free chan struct{}
}

func newHeld(status int) held {
	free := make(chan struct{})
	return held{free: free, HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		<-free
		answers(status, "paid")(w, r)
	}}
}

// sendAll sends an operation several times at once; the function that it returns waits for the answers.
func (svc *service) sendAll(ctx context.Context, n int, key string) (wait func() []got) {
	all := make([]got, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = svc.with(ctx, key, "{}") })
	}
	synctest.Wait()
	return func() []got {
		wg.Wait()
		return all
	}
}

func waits(limit time.Duration, room int) httponce.Options {
	return httponce.Options{MaxWaiting: room, Route: httponce.Route{Wait: limit}}
}

// A duplicate of a running request waits for its answer, and Observe gets the wait.
func TestWaitsForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 0)})
		first := svc.sendAll(context.Background(), 1, "k")
		second := svc.sendAll(context.Background(), 1, "k")
		time.Sleep(10 * time.Second)
		close(h.free)
		if g := first()[0]; g.status != 201 || g.mark != "" {
			t.Errorf("the first got %+v", g)
		}
		if g := second()[0]; g.status != 201 || g.body != "paid" || g.mark != "true" {
			t.Errorf("the duplicate got %+v", g)
		}
		for _, last := range svc.served {
			if waited := last.Outcome == everonce.Replayed; waited != (last.Waited == 10*time.Second) {
				t.Errorf("Observe got %+v, want that the duplicate waited for 10 s", last)
			}
		}
		if svc.ran() != 1 {
			t.Errorf("the handler was called %d times", svc.ran())
		}
	})
}

// Without a setting a duplicate waits, in both modes, for less long than clients usually do; a negative one is refused
// at once.
func TestWaitsByDefault(t *testing.T) {
	for _, mode := range []string{"guarded", "transactional"} {
		for wait, least := range map[time.Duration]time.Duration{0: 5 * time.Second, -1: 0} {
			synctest.Test(t, func(t *testing.T) {
				h := newHeld(201)
				s := setup{handle: h.HandlerFunc, opts: httponce.Options{Route: httponce.Route{Wait: wait}}}
				if mode == "transactional" {
					s.handleTx = func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
						h.ServeHTTP(w, r)
						return nil
					}
				}
				svc := newService(t, s)
				first := svc.sendAll(context.Background(), 1, "k")
				begun := time.Now()
				if g := svc.post("k"); g.status != 409 || g.problem != "in-progress" || g.retryAfter == "" || time.Since(begun) != least {
					t.Errorf("%s, %v: the duplicate got %+v after %v, want a 409 after %v", mode, wait, g, time.Since(begun), least)
				}
				second := svc.sendAll(context.Background(), 1, "k")
				time.Sleep(4 * time.Second)
				close(h.free)
				if g := second()[0]; wait == 0 && (g.status != 201 || g.mark != "true") {
					t.Errorf("%s: a duplicate of a slow success got %+v", mode, g)
				}
				first()
			})
		}
	}
}

// A wait ends while its answer can still be sent: before the server's WriteTimeout, and before the request's deadline.
func TestAWaitEndsWhileAnAnswerCanBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 0)})
		first := svc.sendAll(context.Background(), 1, "k")
		soon, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		for name, ctx := range map[string]context.Context{
			"deadline":     soon,
			"WriteTimeout": context.WithValue(context.Background(), http.ServerContextKey, &http.Server{WriteTimeout: 2 * time.Second}),
		} {
			begun := time.Now()
			if g := svc.with(ctx, "k", "{}"); g.status != 409 || time.Since(begun) == 0 || time.Since(begun) > 2*time.Second {
				t.Errorf("%s: the duplicate got %+v after %v, want a 409 in time", name, g, time.Since(begun))
			}
		}
		close(h.free)
		first()
	})
}

// WriteTimeout runs while the body comes: the wait has what is left of it.
func TestAWaitAfterASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 0)})
		first := svc.sendAll(context.Background(), 1, "k")
		ctx := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{WriteTimeout: 2 * time.Second})
		begun := time.Now()
		r := httptest.NewRequestWithContext(ctx, "POST", "/payments", slowBody{1300 * time.Millisecond, strings.NewReader("{}")})
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		svc.ServeHTTP(w, r)
		if took := time.Since(begun); w.Code != 409 || took != 1650*time.Millisecond {
			t.Errorf("the duplicate got %d after %v, want a 409 after 1.65 s", w.Code, took)
		}
		close(h.free)
		first()
	})
}

// slowBody is a body that begins after a while.
type slowBody struct {
	after time.Duration
	rest  *strings.Reader
}

func (s slowBody) Read(p []byte) (int, error) {
	if s.rest.Len() > 0 {
		time.Sleep(s.after)
	}
	return s.rest.Read(p)
}

// A client that waits for its handler only so long waits no longer as a duplicate.
func TestAWaitIsNoLongerThanAnswerWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: httponce.Options{Route: httponce.Route{AnswerWithin: 300 * time.Millisecond}}})
		for _, want := range []int{503, 409} {
			begun := time.Now()
			if g := svc.post("k"); g.status != want || time.Since(begun) != 300*time.Millisecond {
				t.Errorf("got %+v after %v, want %d after 300 ms", g, time.Since(begun), want)
			}
		}
		close(h.free)
		synctest.Wait()
	})
}

// However many wait for one key, and however long, they cost the store a few claims.
func TestWaitingCostsTheStoreFewClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc})
		first := svc.sendAll(context.Background(), 1, "k")
		var claims atomic.Int32
		svc.fail(func(c oncetest.Call) oncetest.Fault {
			if c.Op == oncetest.OpClaim {
				claims.Add(1)
			}
			return oncetest.Pass
		})
		const crowd = 100
		if g := svc.sendAll(context.Background(), crowd, "k")()[0]; g.status != 409 {
			t.Errorf("got %+v", g)
		}
		// Each asks when it comes, when it begins to wait and when its time is up; in between one asks for all.
		if n := claims.Load(); n > 3*crowd+20 {
			t.Errorf("%d that waited for 5 s made %d claims", crowd, n)
		}
		close(h.free)
		first()
	})
}

// The bound holds for the process: a service with many handlers has as many places as one with a single handler.
func TestAllHandlersShareTheWaitingRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		one := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 2)})
		other := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 2)})
		firsts := []func() []got{one.sendAll(context.Background(), 1, "k"), other.sendAll(context.Background(), 1, "k")}
		waiting := one.sendAll(context.Background(), 2, "k")
		begun := time.Now()
		if g := other.post("k"); g.status != 409 || time.Since(begun) != 0 {
			t.Errorf("one of the other handler got %+v after %v", g, time.Since(begun))
		}
		close(h.free)
		waiting()
		for _, wait := range firsts {
			wait()
		}
		if g := other.post("k"); g.status != 201 {
			t.Errorf("got %+v", g)
		}
	})
}

// A request that has waited as long as the route allows gets a Retry-After.
func TestWaitsNoLongerThanItsRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: waits(5*time.Second, 0)})
		first := svc.sendAll(context.Background(), 1, "k")
		begun := time.Now()
		if g := svc.post("k"); g.status != 409 || g.problem != "in-progress" || g.retryAfter != "1" {
			t.Errorf("the duplicate got %+v", g)
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("it waited %v, want 5 s", took)
		}
		if last := svc.last(); last.Waited != 5*time.Second {
			t.Errorf("Observe got %+v", last)
		}
		close(h.free)
		first()
	})
}

// The receiver's own wait does not let requests wait past the bound.
func TestTheReceiversWaitDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, core: everonce.Options{Wait: time.Minute}, opts: waits(-1, 0)})
		first := svc.sendAll(context.Background(), 1, "k")
		begun := time.Now()
		if g := svc.post("k"); g.status != 409 || time.Since(begun) != 0 {
			t.Errorf("the duplicate got %+v after %v", g, time.Since(begun))
		}
		close(h.free)
		first()
	})
}

// The trap of apache/polaris#4269: a client that repeats one request often enough must not pin every worker.
func TestWaitingRequestsDoNotPinAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		opts := waits(time.Minute, 3)
		opts.Routes = map[string]httponce.Route{"POST /refunds": opts.Route}
		svc := newService(t, setup{handle: h.HandlerFunc, opts: opts})
		first := svc.sendAll(context.Background(), 1, "k")
		waiting := svc.sendAll(context.Background(), 3, "k")
		var elsewhere sync.WaitGroup
		elsewhere.Go(func() { send(svc, "POST", "/refunds", "{}", "Idempotency-Key", "k") })
		synctest.Wait()
		begun := time.Now()
		for range 10 {
			if g := svc.post("k"); g.status != 409 || g.problem != "in-progress" || g.retryAfter == "" {
				t.Errorf("one more than there is room for got %+v", g)
			}
		}
		if g := read(t, send(svc, "POST", "/refunds", "{}", "Idempotency-Key", "k")); g.status != 409 { // the room is all routes'
			t.Errorf("one of another route got %+v", g)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("those that found no room waited %v", took)
		}
		if last := svc.last(); last.Waited != 0 || last.Outcome != everonce.InProgress {
			t.Errorf("Observe got %+v", last)
		}
		other := svc.sendAll(context.Background(), 1, "another") // works, and needs no room
		close(h.free)
		elsewhere.Wait()
		for _, g := range append(append(first(), waiting()...), other()...) {
			if g.status != 201 {
				t.Errorf("one got %+v", g)
			}
		}
		if again := svc.sendAll(context.Background(), 4, "third")(); again[0].status != 201 { // the room is free again
			t.Errorf("got %+v", again)
		}
		if svc.ran() != 4 {
			t.Errorf("the handler was called %d times, want 4", svc.ran())
		}
	})
}

// A client that leaves stops waiting at once, and leaves its place to another.
func TestAClientThatLeavesStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		svc := newService(t, setup{handle: h.HandlerFunc, opts: waits(time.Minute, 1)})
		first := svc.sendAll(context.Background(), 1, "k")
		ctx, leave := context.WithCancel(context.Background())
		gone := svc.sendAll(ctx, 1, "k")
		begun := time.Now()
		leave()
		gone()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it stayed for %v", took)
		}
		stays := svc.sendAll(context.Background(), 1, "k")
		close(h.free)
		if g := stays()[0]; g.status != 201 || g.mark != "true" {
			t.Errorf("the next one got %+v", g)
		}
		first()
	})
}

// A request that waited, and works now, because the one before it was released, does not wait any more: its place is
// free.
func TestWhoWorksDoesNotHoldAPlaceInTheWaitingRoom(t *testing.T) {
	for _, mode := range []string{"guarded", "transactional"} {
		synctest.Test(t, func(t *testing.T) {
			fails, paid := newHeld(429), newHeld(201)
			calls := 0
			s := setup{opts: waits(time.Minute, 1), handle: func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					fails.ServeHTTP(w, r)
				} else {
					paid.ServeHTTP(w, r)
				}
			}}
			if mode == "transactional" {
				s.handleTx = func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
					s.handle(w, r)
					return nil
				}
			}
			svc := newService(t, s)
			first := svc.sendAll(context.Background(), 1, "k")
			second := svc.sendAll(context.Background(), 1, "k")
			time.Sleep(time.Second)
			close(fails.free)
			time.Sleep(time.Second) // the second works now
			third := svc.sendAll(context.Background(), 1, "k")
			time.Sleep(time.Second)
			close(paid.free)
			if g := first()[0]; g.status != 429 {
				t.Errorf("%s: the first got %+v", mode, g)
			}
			if g := second()[0]; g.status != 201 || g.mark != "" {
				t.Errorf("%s: the second got %+v", mode, g)
			}
			if g := third()[0]; g.status != 201 || g.mark != "true" {
				t.Errorf("%s: the third got %+v", mode, g)
			}
		})
	}
}

// In transactional mode duplicates wait alike.
func TestWaitsForATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		svc := newService(t, setup{opts: waits(time.Minute, 1), handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
			<-free
			return charges(201, "paid", nil)(w, r, tx)
		}})
		first := svc.sendAll(context.Background(), 1, "k")
		second := svc.sendAll(context.Background(), 1, "k")
		if g := svc.post("k"); g.status != 409 || g.retryAfter == "" {
			t.Errorf("the third got %+v", g)
		}
		time.Sleep(time.Second)
		close(free)
		if g := first()[0]; g.status != 201 || g.mark != "" {
			t.Errorf("the first got %+v", g)
		}
		if g := second()[0]; g.status != 201 || g.mark != "true" {
			t.Errorf("the second got %+v", g)
		}
		if n := svc.db.Count("charge"); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// A store that fails while a request waits is no reason to let it through: another attempt was seen to run.
func TestNothingFailsOpenThatHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(201)
		opts := waits(time.Minute, 0)
		opts.FailOpen = true
		svc := newService(t, setup{handle: h.HandlerFunc, opts: opts})
		first := svc.sendAll(context.Background(), 1, "k")
		second := svc.sendAll(context.Background(), 1, "k")
		svc.fail(func(c oncetest.Call) oncetest.Fault {
			if c.Op == oncetest.OpClaim {
				return oncetest.FailBefore
			}
			return oncetest.Pass
		})
		if g := second()[0]; g.status != 503 || g.problem != "store-unavailable" {
			t.Errorf("it got %+v", g)
		}
		if svc.ran() != 1 || svc.last().FailedOpen {
			t.Errorf("the handler was called %d times; Observe got %+v", svc.ran(), svc.last())
		}
		svc.fail(nil)
		close(h.free)
		first()
	})
}
