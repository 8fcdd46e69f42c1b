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
	x.told.KeyHash = g.recv.RecordID(x.key).Short()
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
	call := func() verdict {
		return x.awaited(func(calls ...everonce.CallOption) verdict { return g.do(x, calls) })
	}
	if x.route.AnswerWithin > 0 {
		return x.within(call)
	}
	return call(), true
}

// do is one call of the core.
func (g *guard) do(x *exchange, calls []everonce.CallOption) (v verdict) {
	v.res, v.err = everonce.Do(x.context(), g.recv, x.key, func(ctx context.Context, a *everonce.Attempt) (Answer, error) {
		x.stay.leave()
		v.own = x.record()
		work, end := x.workFor(ctx, a)
		defer end()
		r := x.request(work)
		g.next.ServeHTTP(v.own, r)
		x.returned(r)
		v.own.finish()
		if respelled(x.r, v.own.status, v.own.location()) {
			v.own.markNotDone()
		}
		v.ending = v.own.ending()
		return v.own.outcome(v.ending, func(rest [][]byte) (*pieces, error) {
			return g.savePieces(a.Detached(), x, rest)
		})
	}, calls...)
	return v
}

// context returns the context of the call: it ends with the client.
func (x *exchange) context() context.Context {
	if x.absence != nil {
		return x.absence.ctx
	}
	return x.r.Context()
}

// record returns the recorder of a handler that is called now.
func (x *exchange) record() *recorder {
	x.own.init(x, x.absence != nil)
	if x.absence != nil {
		x.own.gate = &x.absence.gate
		x.absence.begin()
	}
	return &x.own
}

// workFor returns the context of the handler, and what is called when that has returned.
func (x *exchange) workFor(ctx context.Context, a *everonce.Attempt) (work context.Context, end func()) {
	if !x.route.EndWithClient {
		x.work.begin(ctx, a, x.route.Deadline)
		return &x.work, x.work.end
	}
	if x.route.Deadline <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, x.route.Deadline)
}

// returned removes what the handler's reading of a form left on the disk, as net/http does for the request that it made.
func (x *exchange) returned(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() //nolint:errcheck // net/http does not ask either
	}
}
