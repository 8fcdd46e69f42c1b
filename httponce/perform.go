package httponce

import (
	"context"
	"errors"
	"net/http"

	"github.com/everonce/everonce"
)

// performance is one call of a handler: what it writes, and its context.
type performance struct {
	own  recorder
	work workContext
}

// call is one call of the core.
func (g *guard) call(x *exchange, opts []everonce.CallOption) (v verdict) {
	v.res, v.err = everonce.Do(x.context(), g.recv, x.key, func(ctx context.Context, a *everonce.Attempt) (Answer, error) {
		x.wait.leave()
		v.own = g.perform(ctx, x, a)
		v.ending = v.own.ending()
		return v.own.outcome(v.ending, func(rest [][]byte) (*pieces, error) {
			return g.savePieces(a.Detached(), x, rest)
		})
	}, opts...)
	if v.own != nil && v.own.respelled {
		g.unbind(x)
	}
	return v
}

// errRespelled is the end of an attempt whose answer is a redirect to another spelling of its path.
var errRespelled = errors.New("the request was redirected to another spelling of its path")

// unbind frees a key that such a redirect has released from its fingerprint: the request that follows has the same key
// and another path. It claims and releases the key once more, with an Alg that no request has.
func (g *guard) unbind(x *exchange) {
	_, err := everonce.Do(context.WithoutCancel(x.context()), g.recv, x.key, func(context.Context, *everonce.Attempt) (Answer, error) {
		return Answer{}, everonce.NotDone(errRespelled)
	}, x.route.call, &everonce.Fingerprint{Alg: algRedirected}, everonce.Unobserved())
	if !errors.Is(err, errRespelled) {
		x.log.WarnContext(x.r.Context(), "httponce: the key of a redirected request could not be freed: the request that follows the redirect may be refused (422)",
			"route", x.served.Route, "key", x.keyHash(), "error", err)
	}
}

// context returns the context of the call: it ends with the client.
func (x *exchange) context() context.Context {
	if x.detached != nil {
		return x.detached.ctx
	}
	return x.r.Context()
}

// perform calls the handler.
func (g *guard) perform(ctx context.Context, x *exchange, a *everonce.Attempt) *recorder {
	p := new(performance)
	p.own.init(x, x.detached != nil)
	if x.own = &p.own; x.detached != nil {
		p.own.gate = &x.detached.gate
		p.own.Header() // later the writer may be the server's again
		x.detached.begin()
	}
	switch {
	case !x.route.EndWithClient:
		p.work.begin(ctx, a, x.route.Deadline)
		defer p.work.end()
		ctx = &p.work
	case x.route.Deadline > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.route.Deadline)
		defer cancel()
	}
	r := x.request(ctx)
	defer x.tidy(r)
	g.next.ServeHTTP(&p.own, r)
	if p.own.wroteNothing() && ctx.Err() != nil {
		x.gaveUp(ctx)
	}
	p.own.finish()
	if respelled(x.r, p.own.status, p.own.location()) {
		p.own.respelled = true
		p.own.MarkNotDone()
	}
	return &p.own
}

// gaveUp handles a handler that has returned without an answer after the end of its context, because its client has
// left. It did not mean the 200 that net/http would send by default, so the outcome is as unknown as after a panic.
func (x *exchange) gaveUp(ctx context.Context) {
	x.log.WarnContext(x.r.Context(), "httponce: the handler returned without an answer after the end of its context: the connection is closed, and the outcome is unknown",
		"route", x.served.Route, "key", x.keyHash(), "cause", context.Cause(ctx))
	panic(http.ErrAbortHandler)
}

// tidy removes what a handler that has read a form left on the disk, as net/http does for the request that it made.
func (x *exchange) tidy(r *http.Request) {
	if r.MultipartForm != nil && r.MultipartForm != x.r.MultipartForm {
		_ = r.MultipartForm.RemoveAll() //nolint:errcheck // net/http does not ask either
	}
}
