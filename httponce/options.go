package httponce

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// Options configure a middleware. The zero value of each field means its default. The values are copied.
type Options struct {
	// Route applies to every request that no entry of Routes matches.
	Route
	// Routes are settings by pattern, in the syntax of [http.ServeMux] ("POST /payments/{id}",
	// "api.example.com/orders/"), for a middleware around any handler. A path that a mux would clean is matched as
	// cleaned; one that only lacks its trailing slash is another route. Hosts are not case-sensitive. An entry inherits
	// nothing from Options.Route: a zero field has the default. Copy a Route to share settings.
	Routes map[string]Route

	// KeyHeader is the request header with the key; see [ParseKey] for its syntax. A header that already has a meaning,
	// such as Authorization, Cookie or Content-Length, is refused. Default Idempotency-Key.
	KeyHeader string
	// Marker is the response header that marks replayed answers. Default Idempotent-Replayed.
	Marker string
	// EchoKey repeats an accepted key in the answer, under the name of KeyHeader and in the client's spelling.
	EchoKey bool
	// ProblemBase is the URI, absolute or a path, to which the name of a problem, such as "in-progress", is appended to
	// make its type. Default: this project's documentation.
	ProblemBase string
	// Profile is the family of clients that the API serves. Default [ProfileDefault].
	Profile Profile
	// MaxWaiting bounds the requests that wait for another attempt at a time; further ones are refused at once, as if
	// their route did not wait. All middlewares of the process count together, and each keeps to its own limit. All
	// principals share it, so one principal can use all of it. Default 256.
	MaxWaiting int
	// MaxStillRunning bounds the handlers that continue after their clients got still-running ([Route.AnswerWithin]) at a
	// time. Beyond it a client waits until its handler, or another one, has returned. All principals share it. Default
	// 1024.
	MaxStillRunning int
	// MaxBodyMemory bounds the bytes that request bodies above 64 KiB take up in memory at any time. All middlewares of
	// the process count together, and each keeps to its own limit. A body that does not fit is kept in a temporary file.
	// Default 64 MiB.
	MaxBodyMemory int64
	// MaxSpool bounds the bytes that request bodies take up in temporary files at any time, over all routes. A
	// request whose body does not fit is answered 503, with the problem busy and RetryAfter, and nothing is claimed.
	// It is at least the largest MaxBody. Default 1 GiB.
	MaxSpool int64
	// RetryAfter is the suggested delay before a retry while the store is down or MaxSpool is reached. Default 5 s.
	RetryAfter time.Duration
	// Log gets what an operator must know, such as answers that could not be recorded and requests that passed
	// unprotected. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called once for every request with a key, and for each that was refused without one, after
	// its answer was sent. It must not block; its panics are logged. The end of a handler that continues after its client
	// was answered (AnswerWithin) is reported to the receiver's Observer.
	Observe func(context.Context, Served)
}

// Route configures the requests of one route. The zero value of each field means its default.
type Route struct {
	// Methods are the methods that take a key. Requests with other methods pass unprotected, even if a key is Required:
	// add PUT or DELETE if a handler has them. Default POST and PATCH. An empty list that is not nil exempts the route. A
	// pattern of Options.Routes whose own method is not in the list is refused. The first request with a key that passes
	// because of an unsafe method is logged as a warning.
	Methods []string
	// Required refuses a request without a key. Default: it passes, unprotected.
	Required bool
	// Principal returns the sender of a request. Default: the principal that [Middleware] or [HandleTx] was given.
	Principal Principal
	// CheckKey, if set, is called with each key, as returned by [ParseKey], for example to require UUIDs. An error is
	// answered 400, with the problem invalid-key and the error's text as its detail, unless that contains the key. It may
	// be called concurrently; a panic continues.
	CheckKey func(key string) error
	// KeyJSON is where clients put the key in a JSON body: a JSON pointer (RFC 6901), for example "/idempotency_key". The
	// key is the string there, of printable ASCII; nothing and null are no key. It is looked for in bodies of the media
	// types application/json and …+json, whatever their parameters, and of any other whose Content-Type mentions JSON, but
	// for sequences such as application/x-ndjson. They are read for it even if they have none, so MaxBody and BodyTimeout
	// hold for them. The header may have the key instead, or the same key too; another one is answered 400, with the
	// problem invalid-key, and so is such a body that is not JSON, has a name twice in one object, or is compressed
	// without a key in the header; with one, a compressed body is not searched. [Options.EchoKey] repeats only a key in
	// the header.
	KeyJSON string
	// KeyFrom, if set, finds the key in the body of any request, for example in a form. It returns "" if the body has no
	// key. An error is answered 400, with the problem invalid-key and the error's text as its detail, so it must not
	// contain the key. Every body is read for it; otherwise the key is treated as with KeyJSON. It must not change the
	// body. The request is a copy with its own body, so it may parse a form. Of bodies above 64 KiB only as many are
	// searched at once as there are processors, so it must not block. It may be called concurrently; a panic continues. It
	// excludes KeyJSON.
	KeyFrom func(r *http.Request, body []byte) (key string, err error)
	// KeyRule describes CheckKey or KeyFrom for [Policy], such as "a UUID in lower case". Default: that a key is checked,
	// or that it may be in the body.
	KeyRule string
	// Name names the route in the scope of its keys; if it returns "", the default holds. Default: the pattern, or else
	// the cleaned path. The pattern comes from Options.Routes, or from [http.Request.Pattern], which is set if a
	// [http.ServeMux] has routed the request before it came here, and not if the middleware is around the mux. By its
	// path, /a/1 and /a/2 are two routes. A router that keeps its pattern elsewhere needs Name, and so do routes whose
	// paths differ only in empty segments, dots or escapes: by default such paths are one route, and the same key on
	// another of them is refused, because its fingerprint differs.
	Name func(*http.Request) string

	// Compare selects the parts of a request that must be equal when its key is used again. Default: method, host,
	// path, query and body.
	Compare Compare
	// Save says, by status, what an answer means for the key. For other statuses Options.Profile decides. Default
	// [DefaultSave].
	Save Save
	// Header selects the headers that are saved. Default: all that may be.
	Header HeaderPolicy

	// Lifetime is how long an answer is kept, and then remembered. Default: the receiver's.
	Lifetime everonce.Lifetime
	// Lease is how long a claim holds without renewal. Default: the receiver's.
	Lease time.Duration
	// Wait is how long a duplicate waits for the answer of a running request before it is refused, but no longer than
	// AnswerWithin, if that is set, and at most half of what is left of [http.Server].WriteTimeout and until the deadline
	// of the request's context. It holds no connection,
	// lock or transaction of the store, and ends when the client disconnects; Options.MaxWaiting bounds how many wait. The
	// receiver's Options.Wait is not used. Default 5 s, which is shorter than the usual timeouts of clients and proxies;
	// negative: it is refused at once.
	Wait time.Duration
	// Policy is the policy for unknown outcomes. Default: the receiver's.
	Policy everonce.Policy
	// Reconcile finds out about an unknown outcome under the policy [everonce.Reconcile]. The answer in its verdict is
	// sent unchanged, and counts as done ([everonce.Executed], then Replayed) even if its status is 400 or above.
	Reconcile func(context.Context, everonce.Abandoned) (everonce.Verdict[Answer], error)

	// Deadline ends the handler's context. Default 5 minutes; a negative value means no deadline. If a handler of a
	// [Middleware] returns after that without having written anything, its connection is closed, and the outcome is
	// unknown.
	Deadline time.Duration
	// AnswerWithin is how long a client waits for its handler before it gets the problem still-running, 503 with a
	// Retry-After; a duplicate waits no longer either (Wait). The handler then continues in a goroutine until it returns,
	// and its answer is recorded; Flush, Hijack and deadlines fail with [http.ErrHandlerTimeout]. An answer that is being
	// sent already is not cut off. [http.Server.Shutdown] does not wait for such handlers: the receiver's Observer sees
	// when they end. Options.MaxStillRunning bounds their number. Default 0: until the handler returns, in the goroutine
	// of the request.
	AnswerWithin time.Duration
	// EndWithClient ends the handler's context if the client disconnects before it is answered. Default: the work
	// goes on, and the client's retry finds its answer.
	EndWithClient bool
	// FailOpen lets requests pass unprotected while the store is down. Default: they are refused. The handler then runs
	// as without the middleware: Deadline, AnswerWithin and EndWithClient do not apply.
	FailOpen bool

	// MaxBody is the largest request body, in bytes; a larger one is answered 413. Default 8 MiB; 1 MiB where Compare
	// compares JSON, and with KeyJSON or KeyFrom, because that is done in memory. A body above 1 MiB is kept in a
	// temporary file ([os.TempDir]) until the handler has returned, and so is one above 64 KiB while Options.MaxBodyMemory
	// is reached; Options.MaxSpool bounds these files together.
	MaxBody int64
	// BodyTimeout is how long a client may take to send its body; a slower one is answered 408. Default 30 s; negative
	// leaves it to the server. It sets the connection's read deadline ([http.ResponseController]), and then restores the
	// deadline of [http.Server].ReadTimeout; if that is shorter, nothing is changed. Behind a ResponseWriter that hides
	// its connection (no method Unwrap) the client is answered in time too, and ReadTimeout decides how long the server
	// then waits for the rest.
	BodyTimeout time.Duration
	// MaxAnswer is the largest answer whose body is kept, in bytes, and how much of one is held in memory. An answer that
	// is too large for a single value of the store is kept in pieces, in separate records. One larger than MaxAnswer
	// becomes a stream: see [Middleware]. An answer of a [HandleTx] is held in memory until the commit, and a larger body
	// is not kept. Default 1 MiB.
	MaxAnswer int64
}

const (
	defaultWait        = 5 * time.Second
	defaultMaxWaiting  = 256
	defaultMaxMemory   = 64 << 20
	defaultMaxSpool    = 1 << 30
	defaultMaxRunning  = 1024
	defaultRetryAfter  = 5 * time.Second
	defaultDeadline    = 5 * time.Minute
	defaultMaxBody     = 8 << 20
	defaultMaxParsed   = 1 << 20
	defaultBodyTimeout = 30 * time.Second
	defaultMaxAnswer   = 1 << 20
)

// settings are checked Options.
type settings struct {
	header, marker string // canonical
	echoKey        bool
	problems       wire.Form
	profile        Profile
	retryAfter     time.Duration
	waiting        space         // for requests that wait for another attempt
	goingOn        chan struct{} // has one for each handler whose client was answered before it returned
	memory, files  space         // for request bodies
	pieceSize      int           // the largest part of an answer that one record keeps
	log            *slog.Logger
	observe        func(context.Context, Served)

	base    *route
	matcher *http.ServeMux // nil without Routes
	routes  []*route       // all, base included
}

// route is a checked Route.
type route struct {
	Route
	pattern string // of Options.Routes; empty for the base
	methods map[string]bool
	wait    time.Duration // 0: a duplicate is refused at once
	bodyKey bodyKey
	save    saves
	sum     fingerprinter
	headers headerFilter
	call    everonce.CallOption // what is the same for every call of the core
	warned  atomic.Bool         // of a request that passed unprotected
}

func (o *Options) settings() (*settings, error) {
	if o == nil {
		o = &Options{}
	}
	s := &settings{
		header: http.CanonicalHeaderKey(cmp.Or(o.KeyHeader, wire.DefaultKeyHeader)), marker: http.CanonicalHeaderKey(cmp.Or(o.Marker, wire.DefaultMarker)),
		echoKey: o.EchoKey, problems: wire.Form{Base: cmp.Or(o.ProblemBase, wire.DefaultProblemBase), Stripe: o.Profile == ProfileStripe}, profile: o.Profile, retryAfter: cmp.Or(o.RetryAfter, defaultRetryAfter),
		log: o.Log, observe: o.Observe,
	}
	err := cmp.Or(s.checkNames(),
		notNegative("MaxWaiting", o.MaxWaiting), notNegative("MaxStillRunning", o.MaxStillRunning),
		notNegative("MaxBodyMemory", o.MaxBodyMemory), notNegative("MaxSpool", o.MaxSpool), notNegative("RetryAfter", o.RetryAfter))
	if err != nil {
		return nil, err
	}
	s.waiting = space{int64(cmp.Or(o.MaxWaiting, defaultMaxWaiting)), &waitingRequests}
	s.goingOn = make(chan struct{}, cmp.Or(o.MaxStillRunning, defaultMaxRunning))
	s.memory = space{cmp.Or(o.MaxBodyMemory, defaultMaxMemory), &bodyMemory}
	s.files = space{cmp.Or(o.MaxSpool, defaultMaxSpool), new(atomic.Int64)}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.base, err = o.Route.compile("", s); err != nil {
		return nil, err
	}
	s.routes = []*route{s.base}
	if err := s.addRoutes(o.Routes); err != nil {
		return nil, err
	}
	return s, s.checkSpool()
}

// checkSpool refuses routes whose largest body would never find room.
func (s *settings) checkSpool() error {
	for _, rt := range s.routes {
		if rt.MaxBody >= smallBody && rt.MaxBody > s.files.limit {
			return rt.in(fmt.Errorf("%w: MaxBody (%d) is above MaxSpool (%d)", everonce.ErrInvalidArgument, rt.MaxBody, s.files.limit))
		}
	}
	return nil
}

func (s *settings) checkNames() error {
	if err := wire.CheckKeyHeader(s.header); err != nil {
		return fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	switch {
	case !wire.IsToken(s.marker):
		return fmt.Errorf("%w: Marker: %q is not the name of a header", everonce.ErrInvalidArgument, s.marker)
	case wire.HasMeaning(s.marker):
		return fmt.Errorf("%w: Marker: %s has a meaning already", everonce.ErrInvalidArgument, s.marker)
	case s.header == s.marker:
		return fmt.Errorf("%w: KeyHeader and Marker are both %s", everonce.ErrInvalidArgument, s.header)
	}
	if err := wire.CheckProblemBase(s.problems.Base); err != nil {
		return fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	if s.profile > ProfileStripe {
		return fmt.Errorf("%w: Profile: %v is not a profile", everonce.ErrInvalidArgument, s.profile)
	}
	return nil
}

func (r Route) compile(pattern string, s *settings) (*route, error) {
	rt := &route{Route: r, pattern: pattern, methods: map[string]bool{}}
	if rt.Methods == nil {
		rt.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range rt.Methods {
		if !wire.IsToken(m) || m != strings.ToUpper(m) || len(m) > maxMethodPart {
			return nil, fmt.Errorf("%w: Methods: %q is not a method", everonce.ErrInvalidArgument, m)
		}
		rt.methods[m] = true
	}
	if r.KeyRule != "" && r.CheckKey == nil && r.KeyFrom == nil {
		return nil, fmt.Errorf("%w: KeyRule is set without CheckKey or KeyFrom", everonce.ErrInvalidArgument)
	}
	if err := r.checkNumbers(); err != nil {
		return nil, err
	}
	var err error
	if rt.bodyKey, err = r.bodyKey(); err != nil {
		return nil, err
	}
	if rt.save, err = r.Save.compile(s.profile); err != nil {
		return nil, err
	}
	if rt.sum, err = r.Compare.compile(s.header); err != nil {
		return nil, err
	}
	if rt.headers, err = r.Header.compile(); err != nil {
		return nil, err
	}
	rt.wait = max(0, cmp.Or(r.Wait, defaultWait))
	if r.AnswerWithin > 0 {
		rt.wait = min(rt.wait, r.AnswerWithin)
	}
	rt.Deadline = cmp.Or(r.Deadline, defaultDeadline)
	rt.BodyTimeout = cmp.Or(r.BodyTimeout, defaultBodyTimeout)
	rt.MaxAnswer = cmp.Or(r.MaxAnswer, defaultMaxAnswer)
	rt.MaxBody = cmp.Or(r.MaxBody, defaultMaxBody)
	if r.MaxBody == 0 && (rt.sum.json != nil || !rt.bodyKey.none()) {
		rt.MaxBody = defaultMaxParsed
	}
	return rt, nil
}

func (r *Route) checkNumbers() error {
	err := cmp.Or(notNegative("AnswerWithin", r.AnswerWithin), notNegative("MaxBody", r.MaxBody), notNegative("MaxAnswer", r.MaxAnswer))
	if err != nil || r.Lifetime == (everonce.Lifetime{}) { // the receiver's
		return err
	}
	return r.Lifetime.Validate()
}

func notNegative[T int | int64 | time.Duration](option string, n T) error {
	if n < 0 {
		return fmt.Errorf("%w: %s is negative (%v)", everonce.ErrInvalidArgument, option, n)
	}
	return nil
}

// checkReconcile refuses a policy that needs Reconcile without one, and a Reconcile that is never called.
func (s *settings) checkReconcile(receivers everonce.Policy) error {
	for _, rt := range s.routes {
		switch policy := cmp.Or(rt.Policy, receivers); {
		case policy == everonce.Reconcile && rt.Reconcile == nil:
			return rt.in(fmt.Errorf("%w: the policy %v needs Reconcile", everonce.ErrInvalidArgument, policy))
		case policy != everonce.Reconcile && rt.Reconcile != nil:
			return rt.in(fmt.Errorf("%w: Reconcile is never called under the policy %v", everonce.ErrInvalidArgument, policy))
		}
	}
	return nil
}

// preparer is a receiver of either mode.
type preparer interface {
	everonce.AnyReceiver
	Prepare(opts ...everonce.CallOption) (everonce.CallOption, error)
}

// prepare puts together what is the same for all calls of the core, which checks its options.
func (s *settings) prepare(recv preparer) (err error) {
	s.pieceSize = pieceSizeOf(recv)
	for _, rt := range s.routes {
		if rt.call, err = recv.Prepare(rt.callOptions()...); err != nil {
			return rt.in(err)
		}
	}
	return nil
}

// callOptions returns the core's call options that do not depend on the request.
func (r *Route) callOptions() []everonce.CallOption {
	calls := []everonce.CallOption{everonce.WithCodec(answerCodec{}), everonce.WithSummary(Answer.summary), everonce.WithWait(0)}
	if r.Lifetime != (everonce.Lifetime{}) {
		calls = append(calls, everonce.WithLifetime(r.Lifetime))
	}
	if r.Lease != 0 {
		calls = append(calls, everonce.WithLease(r.Lease))
	}
	if r.Policy != 0 {
		calls = append(calls, everonce.WithPolicy(r.Policy))
	}
	if r.Reconcile != nil {
		calls = append(calls, everonce.WithReconcile(r.Reconcile))
	}
	return calls
}
