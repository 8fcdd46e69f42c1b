package httponce

import (
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
)

// Middleware returns a function that protects a handler (guarded mode). A request with a key is claimed in the
// receiver's store, handled, and answered once its answer is recorded. Every duplicate gets that answer without a call
// of the handler. Refusals are problem documents (RFC 9457).
//
// The handler's ResponseWriter behaves like net/http's own, but holds the answer until it is recorded, and then sends
// it in one piece. Statuses below 200 are sent at once and not replayed. An answer is a stream if the handler flushes
// it, it switches protocols, the handler hijacks its connection, or it is larger than [Route.MaxAnswer]. A stream is
// sent as it comes, so its bytes precede its record: they cannot be taken back if recording fails or the lease is lost.
// It is recorded when the handler returns. Its duplicates get status and headers without the body, marked "elided" (200
// after a hijack). No operation is executed again because its answer was not kept. A handler that writes more than its
// Content-Length gets [http.ErrContentLength], and its connection stays open.
//
// A protected handler may call another one, under another key. If the inner one gives a temporary answer, such as that
// an attempt is running or that an outcome is unknown, or one marked by [NotDone], or a proxy's problem, the outer
// one's outcome is unknown, whatever its [Save] says of the status. This needs the method Unwrap on every
// ResponseWriter between the two; without it only Save decides.
//
// principal names the sender of a request; use [Unscoped] if all callers are one. The error wraps
// [everonce.ErrInvalidArgument]. The returned function may be used for many handlers and is safe for concurrent use.
func Middleware(recv *everonce.Receiver, principal Principal, opts *Options) (func(http.Handler) http.Handler, error) {
	if recv == nil || principal == nil {
		return nil, fmt.Errorf("%w: the receiver or the principal is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if err := s.prepare(recv); err != nil {
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
	case pass && x != nil:
		x.passOn(g.next)
	case pass:
		g.next.ServeHTTP(w, r)
	case x != nil:
		g.serve(x)
	}
}

// passOn runs the handler of a request whose body was read, and which has no key.
func (x *exchange) passOn(next http.Handler) {
	defer x.body.release()
	r := x.request(x.r.Context())
	defer x.tidy(r)
	next.ServeHTTP(x.w, r)
}

// serve runs the handler of a request, or finds its answer.
func (g *guard) serve(x *exchange) {
	x.recv = g.recv
	x.served.Panicked = true // unless it returns
	defer x.end()
	v, inTime := g.verdict(x)
	switch {
	case !inTime:
		x.stillRunning()
	case v.storeIsDown() && x.route.FailOpen:
		x.failOpen(g.next, v.err)
	default:
		x.answer(v)
	}
	x.served.Panicked = false
}

// verdict calls the core, in this goroutine unless the route bounds the client's wait.
func (g *guard) verdict(x *exchange) (v verdict, inTime bool) {
	if x.route.AnswerWithin > 0 {
		return x.within(g)
	}
	return x.callWaiting(g), true
}
