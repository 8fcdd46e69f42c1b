package httponce

import (
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
)

// Middleware returns a function that protects a handler (guarded mode). A request with a key is claimed in
// the receiver's store, handled, and answered when its answer is recorded; every repetition gets that
// answer, and the handler is not called. Its answer to what it refuses is a problem document (RFC 9457).
//
// The handler's ResponseWriter is net/http's, as far as the handler and the client can tell: what it is given is held
// until it is recorded, and is then sent in the same writes. Statuses below 200 are sent at once, and not replayed. An
// answer that the handler flushes, that switches protocols, whose connection it takes over, or that is larger than
// [Route.MaxAnswer], is a stream: it is sent as it comes, so its bytes precede its record, and should that fail, or the lease be lost, they
// can not be taken back. It is recorded when the handler returns, and its duplicates get its status and
// headers, without the body and with the marker "elided" (200, where the connection was taken over). Nothing is ever
// executed again because its answer was not kept. How net/http frames a replay, by Content-Length or in chunks, may
// differ from the first answer. A handler that writes more than its Content-Length gets http.ErrContentLength, and
// its connection stays open.
//
// A protected handler may call another one, under another key. What the inner one says of a moment, as that an attempt runs or that an
// outcome is unknown, is then no answer for good of the outer one, whatever its [Save] says of the status; but where a ResponseWriter
// between the two has no method Unwrap, the outer one can not be told, and its Save alone counts.
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
	if err := s.prepare(recv); err != nil {
		return nil, err
	}
	if err := s.checkReconcile(recv.Policy()); err != nil {
		return nil, err
	}
	size := pieceSizeOf(recv)
	return func(next http.Handler) http.Handler {
		return &guard{settings: s, recv: recv, principal: principal, next: next, pieceSize: size}
	}, nil
}

// guard is a protected handler.
type guard struct {
	*settings
	recv      *everonce.Receiver
	principal Principal
	next      http.Handler
	pieceSize int
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
	x.recv, x.pieceSize = g.recv, g.pieceSize
	x.told.Panicked = true // unless it returns
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
	x.told.Panicked = false
}

// verdict calls the core, in this goroutine unless the route bounds the client's wait.
func (g *guard) verdict(x *exchange) (v verdict, inTime bool) {
	if x.route.AnswerWithin > 0 {
		return x.within(g)
	}
	return x.awaited(g), true
}
