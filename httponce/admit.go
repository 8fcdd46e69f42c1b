package httponce

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// exchange is one request with a key, and its answer.
type exchange struct {
	*settings
	route  *route
	w      http.ResponseWriter
	r      *http.Request // the body is read: see request
	key    everonce.Key
	echoed string // the key as it was spelled, to be repeated in the answer; empty where it is not
	number string // of a session, for the answer; empty without one
	known  string // what the answer says of the number: wire.OutcomeKept and others
	sum    everonce.Fingerprint
	body   body // what is kept of the request's
	begun  time.Time
	stay   stay
	told   Served

	opts    [3]everonce.CallOption // room for those of a call
	recv    everonce.AnyReceiver   // set when the key counts
	own     *recorder              // what the handler writes; nil until it is called
	absence *absence               // set where the client does not wait for ever
}

// admit reads what is needed to know an operation. It returns nil where the request was refused, or, with
// pass, where it is none of ours.
func (s *settings) admit(w http.ResponseWriter, r *http.Request, principal Principal) (x *exchange, pass bool) {
	rt, name := s.routeOf(r)
	if !rt.methods[r.Method] {
		s.notHeeded(rt, name, r)
		return nil, true
	}
	id, found, wrong := wire.KeyOf(r.Header, s.header)
	if !found && !rt.Required {
		return nil, true
	}
	x = &exchange{settings: s, route: rt, w: w, r: r, begun: s.now(), told: Served{Method: r.Method, Route: name}}
	switch {
	case !found:
		x.refused(wire.MissingKey, 0)
		return nil, false
	case wrong == "" && rt.CheckKey != nil:
		wrong = keyProblemOf(rt.CheckKey(id), id)
	}
	if wrong != "" {
		p := wire.InvalidKey
		p.Detail = s.header + ": " + string(wrong) + "."
		x.refused(p, 0)
		return nil, false
	}
	if s.echoKey {
		x.echoed = r.Header[s.header][0] // before a handler changes it
	}
	who, ok := x.sender(principal)
	if !ok {
		return nil, false
	}
	x.key = everonce.Key{Scope: scopeOf(who, r.Method, name), ID: id}
	if !x.readRequest() {
		return nil, false
	}
	return x, false
}

// sender returns who sends the request; it refuses the request, and returns false, where nobody is known.
func (x *exchange) sender(principal Principal) (who string, ok bool) {
	if x.route.Principal != nil {
		principal = x.route.Principal
	}
	who, err := principal.name(x.r)
	if err != nil {
		x.log.InfoContext(x.r.Context(), "httponce: no principal", "route", x.told.Route, "error", err)
		x.refused(wire.NoPrincipal, 0)
		return "", false
	}
	return who, true
}

// readRequest reads the body and the fingerprint; it refuses the request, and returns false, where that fails.
func (x *exchange) readRequest() bool {
	if !x.readBody() {
		return false
	}
	var err error
	if x.sum, err = x.route.sum.of(x.r, &x.body); err != nil {
		x.bodyRefused(err)
		return false
	}
	return true
}

// notHeeded warns, once for a route, of a request that its sender may believe protected, and whose method heeds no key. An exempt
// route was meant, and a safe method needs none.
func (s *settings) notHeeded(rt *route, name string, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return
	}
	if _, found := r.Header[s.header]; len(rt.methods) == 0 || !found && !rt.Required || rt.warned.Swap(true) {
		return
	}
	s.log.WarnContext(r.Context(), "httponce: a request passes unprotected because its method heeds no key (if that is not intended, add it to Methods; logged once per route)",
		"route", name, "method", r.Method)
}

// unprotected reads the body of a request that has no key. ok is false where it was refused.
func (s *settings) unprotected(w http.ResponseWriter, r *http.Request) (x *exchange, ok bool) {
	rt, name := s.routeOf(r)
	x = &exchange{settings: s, route: rt, w: w, r: r, begun: s.now(), told: Served{Method: r.Method, Route: name}}
	return x, x.readBody()
}

// readBody reads the body; it refuses the request, and returns false, where that fails.
func (x *exchange) readBody() bool {
	x.body.memory, x.body.files = &x.memory, &x.files
	ended := false
	defer func() {
		if !ended { // a panic of somebody's reader
			x.body.release()
		}
	}()
	err := x.body.readBody(x.w, x.r, x.route.MaxBody, x.route.BodyWithin)
	ended = true
	if err == nil {
		return true
	}
	if x.r.ProtoMajor < 2 { // where it would end every other stream too
		x.w.Header().Set("Connection", "close")
	}
	x.bodyRefused(err)
	return false
}

// bodyRefused answers a request whose body cannot be had. Nothing has been claimed.
func (x *exchange) bodyRefused(err error) {
	var ours *spoolError
	var limited *http.MaxBytesError // somebody outside of us has a lower limit
	switch {
	case errors.As(err, &ours):
		x.log.ErrorContext(x.r.Context(), "httponce: no room for a request body", "route", x.told.Route, "error", err)
		x.refused(wire.Unavailable, x.retryAfter)
	case errors.Is(err, errSpoolFull):
		x.log.WarnContext(x.r.Context(), "httponce: a request was refused because MaxSpool is reached", "route", x.told.Route)
		x.refused(wire.Busy, x.retryAfter)
	case errors.Is(err, errBodyTooLarge):
		p := wire.BodyTooLarge
		p.Detail = "The limit is " + strconv.FormatInt(x.route.MaxBody, 10) + " bytes."
		x.refused(p, 0)
	case errors.As(err, &limited):
		x.refused(wire.BodyTooLarge, 0)
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.refused(wire.BodyTooSlow, 0)
	default:
		x.refused(wire.BodyBroken, 0)
	}
}

// refused answers with a problem, and is the end of the exchange.
func (x *exchange) refused(p wire.Problem, retryAfter time.Duration) {
	x.problem(p, retryAfter)
	x.end()
}

// now is the time, where somebody will be told how long something took.
func (s *settings) now() (t time.Time) {
	if s.observe != nil {
		t = time.Now()
	}
	return t
}

// keyHash returns the key as logs and metrics may have it: empty as long as it does not count.
func (x *exchange) keyHash() string {
	if x.recv == nil {
		return ""
	}
	return x.recv.RecordID(x.key).Short()
}

func (x *exchange) end() {
	x.body.release()
	if x.observe != nil {
		x.told.KeyHash = x.keyHash()
		x.told.Duration = time.Since(x.begun)
		x.tell()
	}
}

// tell tells Observe. A panic of it would break the connection off, and cost the client an answer that is recorded.
func (x *exchange) tell() {
	defer func() {
		if p := recover(); p != nil {
			x.log.ErrorContext(x.r.Context(), "httponce: Observe panicked", "route", x.told.Route, "key", x.told.KeyHash, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	x.observe(x.r.Context(), x.told)
}

// request returns the request that the handler gets: with its body, and with a context of its own.
func (x *exchange) request(ctx context.Context) *http.Request {
	r := x.r.WithContext(ctx)
	r.Body = x.body.open()
	return r
}
