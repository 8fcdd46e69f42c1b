package httponce

import (
	"context"
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
	if err := s.checkReconcile(recv.Policy()); err != nil {
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
	x.told.Panicked = true // unless it returns
	defer x.end()
	v := x.awaited(func(calls ...everonce.CallOption) verdict { return g.do(x, calls) })
	if v.storeIsDown() && x.route.FailOpen {
		x.failOpen(g.next, v.err)
	} else {
		x.answer(v)
	}
	x.told.Panicked = false
}

// do is one call of the core.
func (g *guard) do(x *exchange, calls []everonce.CallOption) (v verdict) {
	v.res, v.err = everonce.Do(x.r.Context(), g.recv, x.key, func(ctx context.Context, a *everonce.Attempt) (Answer, error) {
		x.stay.leave()
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
		if respelled(x.r, v.own.status, v.own.Header().Get("Location")) {
			v.own.markNotDone()
		}
		v.ending = v.own.ending()
		return v.own.outcome()
	}, calls...)
	return v
}
