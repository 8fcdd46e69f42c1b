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
	wait   waitSlot
	served Served

	opts     [3]everonce.CallOption // room for the options of a call
	recv     everonce.AnyReceiver   // set when the key counts
	own      *recorder              // what the handler writes; nil until it is called
	detached *detached              // set where the client does not wait for ever
}

// exchangeOf is the beginning of an exchange. Until somebody else takes it over, its maker releases its body: also
// after a panic of the application's functions, of a reader, or of the ResponseWriter.
func (s *settings) exchangeOf(w http.ResponseWriter, r *http.Request, rt *route, name string) *exchange {
	x := &exchange{settings: s, route: rt, w: w, r: r, begun: time.Now(), served: Served{Method: r.Method, Route: name}}
	x.body.memory, x.body.files = &x.memory, &x.files
	return x
}

// releaseUnless releases the body unless the exchange was taken over. It is deferred by the maker of an exchange.
func (x *exchange) releaseUnless(taken *bool) {
	if !*taken {
		x.body.release()
	}
}

// admit reads what is needed to know an operation. It returns nil if the request was refused, or, with pass, if it is
// to pass unprotected. In that case x is not nil if the body was read to look for a key.
func (s *settings) admit(w http.ResponseWriter, r *http.Request, principal Principal) (x *exchange, pass bool) {
	rt, name := s.routeOf(r)
	if !rt.methods[r.Method] {
		s.warnUnprotected(rt, name, r)
		return nil, true
	}
	inHeader := len(r.Header[s.header]) > 0
	inBody := rt.bodyKey.in(r, inHeader)
	if !inHeader && !rt.Required && !inBody {
		return nil, true
	}
	x = s.exchangeOf(w, r, rt, name)
	taken := false
	defer x.releaseUnless(&taken)
	ok, pass := x.admitted(principal, inBody)
	if taken = ok || pass; !taken {
		return nil, false
	}
	return x, pass
}

// admitted reads the key, the sender and the body. Where neither ok nor pass is true the request was refused. The
// sender is asked for before the body is read, unless only a key in the body would need one.
func (x *exchange) admitted(principal Principal, inBody bool) (ok, pass bool) {
	id, found, wrong := wire.KeyOf(x.r.Header, x.header)
	if wrong != "" {
		x.rejectKey(x.header, wrong)
		return false, false
	}
	if found && !x.accepted(x.header, id) {
		return false, false
	}
	var who string
	early := found || inBody && x.route.Required
	if early {
		if who, ok = x.sender(principal); !ok {
			return false, false
		}
	}
	if inBody {
		if id, found, ok = x.keyWithBody(id, found); !ok {
			return false, false
		}
	}
	switch {
	case !found && !x.route.Required:
		return false, true
	case !found:
		x.keyMissing()
		return false, false
	case !early:
		if who, ok = x.sender(principal); !ok {
			return false, false
		}
	}
	if own := x.r.Header[x.header]; x.echoKey && len(own) > 0 {
		x.echoed = own[0] // before a handler changes it
	}
	x.key = everonce.Key{Scope: scopeOf(who, x.r.Method, x.served.Route), ID: id}
	return (inBody || x.readBody()) && x.readFingerprint(), false
}

// accepted asks [Route.CheckKey] about the key at that place; it refuses the request, and returns false, where that
// does.
func (x *exchange) accepted(place, id string) bool {
	if x.route.CheckKey == nil {
		return true
	}
	wrong := keyProblemOf(x.route.CheckKey(id), id)
	if wrong != "" {
		x.rejectKey(place, wrong)
	}
	return wrong == ""
}

// keyWithBody reads the body, and returns the key in the body or in the header. It rejects the request, and returns ok
// false, if the body has an invalid key, or another key than the header.
func (x *exchange) keyWithBody(id string, inHeader bool) (key string, found, ok bool) {
	if !x.readBody() {
		return "", false, false
	}
	own, found, wrong, err := x.keyInBody()
	place := x.route.bodyKey.place()
	switch {
	case err != nil:
		x.rejectBody(err)
	case wrong != "":
		x.rejectKey(place, wrong)
	case found && inHeader && own != id:
		x.rejectKey(x.header, wire.KeyDiffers)
	case inHeader:
		return id, true, true
	case !found:
		return "", false, true
	default:
		return own, true, x.accepted(place, own)
	}
	return "", false, false
}

// rejectKey rejects a request whose key, at the named place, is invalid.
func (x *exchange) rejectKey(place string, wrong wire.KeyProblem) {
	p := wire.InvalidKey
	p.Detail = place + ": " + string(wrong) + "."
	x.reject(p, 0)
}

func (x *exchange) keyMissing() {
	p := wire.MissingKey
	if !x.route.bodyKey.none() {
		p.Detail = "This service requires a key: in the header " + x.header + ", or as " + x.route.bodyKey.place() + "."
	}
	x.reject(p, 0)
}

// sender returns the principal that sends the request. If there is no principal, it rejects the request and returns
// false.
func (x *exchange) sender(principal Principal) (who string, ok bool) {
	if x.route.Principal != nil {
		principal = x.route.Principal
	}
	who, err := principal.name(x.r)
	if err != nil {
		x.log.InfoContext(x.r.Context(), "httponce: no principal", "route", x.served.Route, "error", err)
		x.reject(wire.NoPrincipal, 0)
		return "", false
	}
	return who, true
}

// readFingerprint hashes the request, whose body has been read; it refuses the request, and returns false, where that
// fails.
func (x *exchange) readFingerprint() bool {
	var err error
	if x.sum, err = x.route.sum.of(x.r, &x.body); err != nil {
		x.rejectBody(err)
		return false
	}
	return true
}

// warnUnprotected warns, once for a route, of a request whose sender may believe it protected, but whose method takes
// no key. It does not warn on an exempt route, nor for a safe method, which needs no key.
func (s *settings) warnUnprotected(rt *route, name string, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return
	}
	if _, found := r.Header[s.header]; len(rt.methods) == 0 || !found && !rt.Required || rt.warned.Swap(true) {
		return
	}
	s.log.WarnContext(r.Context(), "httponce: a request passes unprotected because its method takes no key (if that is not intended, add it to Methods; logged once per route)",
		"route", name, "method", r.Method)
}

// unprotected reads the body of a request that has no key. ok is false where it was refused.
func (s *settings) unprotected(w http.ResponseWriter, r *http.Request) (x *exchange, ok bool) {
	rt, name := s.routeOf(r)
	x = s.exchangeOf(w, r, rt, name)
	defer x.releaseUnless(&ok)
	ok = x.readBody()
	return x, ok
}

// readBody reads the body; it refuses the request, and returns false, where that fails.
func (x *exchange) readBody() bool {
	err := x.body.readBody(x.w, x.r, x.route.MaxBody, x.route.BodyTimeout)
	if err == nil {
		return true
	}
	if x.r.ProtoMajor < 2 { // where it would end every other stream too
		x.w.Header().Set("Connection", "close")
	}
	x.rejectBody(err)
	return false
}

// rejectBody answers a request whose body cannot be had. Nothing has been claimed.
func (x *exchange) rejectBody(err error) {
	var ours *spoolError
	var limited *http.MaxBytesError // somebody outside of us has a lower limit
	switch {
	case errors.As(err, &ours):
		x.log.ErrorContext(x.r.Context(), "httponce: no room for a request body", "route", x.served.Route, "error", err)
		x.reject(wire.Unavailable, x.retryAfter)
	case errors.Is(err, errSpoolFull):
		x.log.WarnContext(x.r.Context(), "httponce: a request was refused because MaxSpool is reached", "route", x.served.Route)
		x.reject(wire.Busy, x.retryAfter)
	case errors.Is(err, errBodyTooLarge):
		p := wire.BodyTooLarge
		p.Detail = "The limit is " + strconv.FormatInt(x.route.MaxBody, 10) + " bytes."
		x.reject(p, 0)
	case errors.As(err, &limited):
		x.reject(wire.BodyTooLarge, 0)
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.reject(wire.BodyTooSlow, 0)
	default:
		x.reject(wire.BodyBroken, 0)
	}
}

// reject answers with a problem, and is the end of the exchange but for its body.
func (x *exchange) reject(p wire.Problem, retryAfter time.Duration) {
	x.problem(p, retryAfter)
	x.report()
}

// keyHash returns the key's hash for logs and metrics: empty as long as the key is not in use.
func (x *exchange) keyHash() string {
	if x.recv == nil {
		return ""
	}
	return x.recv.RecordID(x.key).Short()
}

func (x *exchange) end() {
	x.body.release()
	x.report()
}

// report reports the exchange to Observe, if there is one.
func (x *exchange) report() {
	if x.observe != nil {
		x.served.KeyHash = x.keyHash()
		x.served.Duration = time.Since(x.begun)
		x.notifyObserver()
	}
}

// notifyObserver calls Observe. A panic of it would break the connection off, and cost the client an answer that is
// recorded.
func (x *exchange) notifyObserver() {
	defer func() {
		if p := recover(); p != nil {
			x.log.ErrorContext(x.r.Context(), "httponce: Observe panicked", "route", x.served.Route, "key", x.served.KeyHash, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	x.observe(x.r.Context(), x.served)
}

// request returns the handler's request, with its body and its own context.
func (x *exchange) request(ctx context.Context) *http.Request {
	r := x.r.WithContext(ctx)
	r.Body = x.body.open()
	return r
}
