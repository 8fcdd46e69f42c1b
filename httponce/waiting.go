package httponce

import (
	"time"

	"github.com/everonce/everonce"
)

// waitingRoom bounds the requests that wait for another attempt: each of them pins a connection and a goroutine,
// and a client that repeats itself often enough would otherwise pin them all.
type waitingRoom chan struct{}

// stay is the time that one request spends in the waiting room.
type stay struct {
	room   waitingRoom
	since  time.Time
	waited time.Duration
}

// enter reports whether there was a place.
func (s *stay) enter(room waitingRoom) bool {
	select {
	case room <- struct{}{}:
		s.room, s.since = room, time.Now()
		return true
	default:
		return false
	}
}

// leave gives the place back: when the wait is over, or when the request that waited has become the one that
// works. Later calls do nothing.
func (s *stay) leave() {
	if s.room == nil {
		return
	}
	<-s.room
	s.room, s.waited = nil, time.Since(s.since)
}

// core makes a call of the core: in one mode or the other. It leaves the waiting room when its work begins.
type core interface {
	call(x *exchange, opts []everonce.CallOption) verdict
}

// awaited makes a call of the core that does not wait, and one that does where another attempt runs, the route
// waits, and there is a place in the waiting room.
func (x *exchange) awaited(c core) verdict {
	opts := append(x.opts[:0], x.route.call, &x.sum)
	v := c.call(x, opts)
	if v.res.Outcome != everonce.InProgress || x.route.Wait == 0 || !x.stay.enter(x.waiting) {
		return v
	}
	defer x.stay.leave()
	v = c.call(x, append(opts, everonce.WithWait(x.route.Wait)))
	x.stay.leave()
	v.met, v.waited = true, x.stay.waited
	return v
}
