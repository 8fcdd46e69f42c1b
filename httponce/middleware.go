package httponce

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
)

// Middleware returns a function that protects a handler (guarded mode). A request with a key is claimed in
// the receiver's store, handled, and answered when its answer is recorded; every repetition gets that
// answer, and the handler is not called. Its answer to what it refuses is a problem document (RFC 9457).
//
// principal tells who sends a request; [Unscoped] where all are one. The error wraps
// [everonce.ErrInvalidArgument] and says what is missing or wrong. What is returned may be used for many
// handlers and is safe for concurrent use.
func Middleware(recv *everonce.Receiver, principal Principal, opts *Options) (func(http.Handler) http.Handler, error) {
	if recv == nil || principal == nil {
		return nil, fmt.Errorf("%w: the receiver or the principal is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &guard{settings: s, recv: recv, principal: principal, next: next}
	}, nil
}

// guard is a protected handler.
type guard struct {
	*settings
	recv      *everonce.Receiver
	principal Principal
	next      http.Handler
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, pass := g.admit(w, r, g.principal)
	switch {
	case pass:
		g.next.ServeHTTP(w, r)
	case x != nil:
		g.serve(x)
	}
}

// serve runs the handler of a request, or finds its answer.
func (g *guard) serve(x *exchange) {
	x.told.KeyHash = g.recv.RecordID(x.key).Short()
	v := x.awaited(func(calls ...everonce.CallOption) verdict { return g.do(x, calls) })
	if v.storeIsDown() && x.route.FailOpen {
		x.failOpen(g.next, v.err)
		return
	}
	x.answer(v)
}

// do is one call of the core.
func (g *guard) do(x *exchange, calls []everonce.CallOption) (v verdict) {
	v.res, v.err = everonce.Do(x.r.Context(), g.recv, x.key, func(ctx context.Context, a *everonce.Attempt) (Answer, error) {
		v.own = newRecorder(x.w, x.route)
		if !x.route.EndWithClient {
			ctx = a.Detached()
		}
		if x.route.Deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, x.route.Deadline)
			defer cancel()
		}
		g.next.ServeHTTP(v.own, x.request(ctx))
		v.own.finish()
		return v.own.outcome()
	}, calls...)
	return v
}

// awaited makes a call that does not wait, and one that does where the route waits and there is room.
func (x *exchange) awaited(call func(...everonce.CallOption) verdict) verdict {
	calls := append(make([]everonce.CallOption, 0, len(x.route.calls)+2), x.route.calls...)
	calls = append(calls, x.sum, everonce.Wait(0))
	v := call(calls...)
	if v.res.Outcome != everonce.InProgress || x.route.Wait == 0 {
		return v
	}
	select {
	case x.waiting <- struct{}{}:
		defer func() { <-x.waiting }()
	default:
		return v
	}
	calls[len(calls)-1] = everonce.Wait(x.route.Wait)
	return call(calls...)
}

// failOpen calls the handler unprotected.
func (x *exchange) failOpen(next http.Handler, cause error) {
	x.told.FailedOpen = true
	x.log.ErrorContext(x.r.Context(), "httponce: the store is down, and the request goes on UNPROTECTED",
		"route", x.told.Route, "key", x.told.KeyHash, "error", cause)
	defer x.end()
	next.ServeHTTP(x.w, x.request(x.r.Context()))
}

// storeIsDown reports whether the store could not be asked, and nothing ran.
func (v *verdict) storeIsDown() bool {
	return v.res.Outcome == everonce.StoreFailed && v.own == nil &&
		!errors.Is(v.err, everonce.ErrUndecodable) && !errors.Is(v.err, everonce.ErrCorruptRecord) &&
		!errors.Is(v.err, everonce.ErrNewerRecord) && !errors.Is(v.err, everonce.ErrIdentity)
}
