package httponce

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// gate keeps a handler that goes on after its client has been answered away from the ResponseWriter: that is
// the server's again when ServeHTTP has returned.
type gate struct {
	mu       sync.Mutex
	answered bool
	over     bool // the handler's call has ended: too late to answer in its place
}

// enter reports whether the writer is still the handler's, and keeps it so until leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	if g.answered {
		g.mu.Unlock()
		return false
	}
	return true
}

func (g *gate) leave() { g.mu.Unlock() }

// take makes the writer the server's again. It returns false where the handler has begun to send, or its call has
// ended: then the answer is its own.
func (g *gate) take(r *recorder) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || r.Sending() {
		return false
	}
	g.answered = true
	return true
}

// end is the end of the call. It reports whether the client has been answered before.
func (g *gate) end() (late bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	return g.answered
}

// detached is a handler call that runs in its own goroutine, because its client does not wait for ever.
type detached struct {
	gate
	ctx     context.Context // the request's, until the client has been answered
	cancel  context.CancelFunc
	begun   chan struct{} // the handler has been called
	started sync.Once
	ended   chan struct{}

	// The result, when ended is closed.
	v        verdict
	panicked any
	returned bool
}

// begin tells that the handler is called now: from then on the client waits so long, and no longer.
func (a *detached) begin() { a.started.Do(func() { close(a.begun) }) }

// within makes a call of the core in a separate goroutine. It returns false if the handler took longer than the client
// waits. The call then continues, and its result is logged if it is not reported elsewhere.
//
// A panic and a Goexit are the serving goroutine's, as long as that waits.
func (x *exchange) within(c core) (v verdict, inTime bool) {
	a := &detached{begun: make(chan struct{}), ended: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(x.r.Context()))
	x.detached = a
	client := context.AfterFunc(x.r.Context(), a.cancel)
	x.body.hold()
	go func() {
		defer x.body.release()
		x.run(a, c)
	}()
	if !a.inTime(x) {
		client() // the end of ServeHTTP is not the client's
		return v, false
	}
	client()
	switch {
	case a.panicked != nil:
		panic(a.panicked)
	case !a.returned:
		runtime.Goexit()
	}
	return a.v, true
}

// inTime waits for the call, for as long as the route allows after its handler has begun. It returns false if the
// client is to be answered that the call continues. That takes a place, which the end of the call gives back; without a
// free place the client waits on.
func (a *detached) inTime(x *exchange) bool {
	select {
	case <-a.ended:
		return true
	case <-a.begun:
	}
	timer := time.NewTimer(x.route.AnswerWithin)
	defer timer.Stop()
	select {
	case <-a.ended:
		return true
	case <-timer.C:
	}
	select {
	case <-a.ended:
		return true
	case x.goingOn <- struct{}{}:
	}
	if a.take(x.own) {
		return false
	}
	<-x.goingOn
	<-a.ended
	return true
}

// run is the goroutine of the call.
func (x *exchange) run(a *detached, c core) {
	defer func() {
		if !a.returned {
			a.panicked = recover() // nil after a Goexit
		}
		if a.panicked != nil && a.panicked != http.ErrAbortHandler { //nolint:errorlint // the value of a panic
			// The stack is gone when the serving goroutine panics with the same value.
			x.log.ErrorContext(a.ctx, "httponce: the handler panicked", "route", x.served.Route, "key", x.keyHash(), "panic", a.panicked, "stack", string(debug.Stack()))
		}
		if a.gate.end() {
			<-x.goingOn
			if a.returned {
				x.logVerdict(&a.v)
			}
		}
		a.cancel()
		close(a.ended)
	}()
	a.v = x.callWaiting(c)
	a.returned = true
}

// stillRunning tells the client that its handler goes on.
func (x *exchange) stillRunning() {
	x.served.Outcome = everonce.InProgress // by this very request: it was not refused
	x.echo(x.w.Header())
	x.problem(wire.StillRunning, max(x.route.AnswerWithin, time.Second))
}
