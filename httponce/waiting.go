package httponce

import (
	"net/http"
	"time"

	"github.com/everonce/everonce"
)

// waitSlot is the time that one request waits for another attempt. The number of such requests is bounded: each of them
// pins a connection, a goroutine and its body, and a client that repeats itself often enough would otherwise pin them
// all.
type waitSlot struct {
	room   *space // nil unless the request waits
	since  time.Time
	waited time.Duration
}

// enter reports whether there was a place.
func (s *waitSlot) enter(room *space) bool {
	if !room.take(1) {
		return false
	}
	s.room, s.since = room, time.Now()
	return true
}

// leave gives the place back: when the wait is over, or when the request that waited has become the one that
// works. Later calls do nothing.
func (s *waitSlot) leave() {
	if s.room == nil {
		return
	}
	s.room.give(1)
	s.room, s.waited = nil, time.Since(s.since)
}

// core makes a call of the core: in one mode or the other. It gives up its place among those that wait when its work
// begins.
type core interface {
	call(x *exchange, opts []everonce.CallOption) verdict
}

// callWaiting makes a call of the core that does not wait, and one that does where another attempt runs, the route
// waits, and there is a place to wait.
func (x *exchange) callWaiting(c core) verdict {
	opts := append(x.opts[:0], x.route.call, &x.sum)
	v := c.call(x, opts)
	if v.res.Outcome != everonce.InProgress || x.route.wait == 0 || !x.wait.enter(&x.waiting) {
		return v
	}
	defer x.wait.leave()
	v = c.call(x, append(opts, everonce.WithWait(x.waitLimit())))
	x.wait.leave()
	v.concurrent, v.waited = true, x.wait.waited
	return v
}

// waitLimit returns how long the request may wait. After the server's WriteTimeout, which runs since the request's
// header was read, or the end of the request's context, no answer could be sent. So half of what is left until then is
// for the answer, or for the work of a request that takes over.
func (x *exchange) waitLimit() time.Duration {
	ctx, limit := x.r.Context(), x.route.wait
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		limit = min(limit, max(0, (server.WriteTimeout-time.Since(x.begun))/2))
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, max(0, time.Until(end)/2))
	}
	return limit
}
