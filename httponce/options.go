package httponce

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/everonce/everonce"
)

// Options configure a middleware. The zero value of each field is its default.
type Options struct {
	// Route holds for every request that no entry of Routes matches.
	Route
	// Routes are settings by pattern, as [http.ServeMux] reads them ("POST /payments/{id}"). An entry stands
	// alone: what it leaves out is the default, not Options.Route's. Copy a Route to share settings.
	Routes map[string]Route

	// Header is the request header that carries the key. Default Idempotency-Key.
	Header string
	// Marker is the response header that marks what is not sent for the first time. Default Idempotent-Replayed.
	Marker string
	// EchoKey repeats the key in the answer, under the name of Header.
	EchoKey bool
	// ProblemBase is the URI that the types of problems begin with; a name like "in-progress" follows. Default
	// is this project's documentation.
	ProblemBase string
	// MaxWaiting bounds the requests that wait for another attempt at any time; one more is refused at once, as
	// if its route did not wait. Default 256.
	MaxWaiting int
	// RetryAfter is what a client is told while the store is down. Default 5 s.
	RetryAfter time.Duration
	// Log gets what an operator must hear of: answers that could not be recorded, requests that were let
	// through unprotected, panics whose client had been answered. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called once for every request with a key, after its answer was sent. It must not block.
	Observe func(context.Context, Served)
}

// Route is how the requests of one route are treated. The zero value of each field is its default.
type Route struct {
	// Methods are those that heed a key; others pass untouched. Default POST and PATCH.
	Methods []string
	// Required refuses a request without a key. Default: it passes, unprotected.
	Required bool
	// Name names the route in the scope of its keys. Default: the pattern where the request has been routed by
	// a [http.ServeMux] before it came here, or by Options.Routes; else the cleaned path, so that
	// /a/1 and /a/2 are two routes. A router that keeps its pattern elsewhere needs this.
	Name func(*http.Request) string

	// Fingerprint says which parts of a request must be equal when its key is used again.
	Fingerprint Fingerprint
	// Save says, by status, what becomes of the key. Default [DefaultSave]; what it leaves out is as there.
	Save Save
	// Header says which headers of an answer are saved.
	Header HeaderPolicy

	// Lifetime is how long an answer is kept, and remembered after that. Default: the receiver's.
	Lifetime everonce.Lifetime
	// Lease is how long a claim holds without renewal. Default: the receiver's.
	Lease time.Duration
	// Wait is how long a duplicate waits for the answer of a running request before it is refused. Default 0: it
	// is refused at once. The receiver's Options.Wait does not count here: those who wait are bounded by MaxWaiting.
	Wait time.Duration
	// Policy is for requests whose outcome nobody knows. Default: the receiver's.
	Policy everonce.Policy
	// Reconcile is asked about such a request where the policy is [everonce.Reconcile].
	Reconcile func(context.Context, everonce.Abandoned) (everonce.Verdict[Answer], error)

	// Deadline ends the context of the handler. Default 5 minutes; negative is none.
	Deadline time.Duration
	// AnswerWithin is how long the client waits for the handler before it is told to ask again; the handler goes
	// on until it returns, and its answer is kept. Default 0: until the handler returns.
	AnswerWithin time.Duration
	// EndWithClient ends the handler's context when the client goes away. Default: the work goes on,
	// and the client's retry finds its answer.
	EndWithClient bool
	// FailOpen lets requests through unprotected while the store is down. Default: they are refused.
	FailOpen bool

	// MaxBody is the largest request body, in bytes. Default 8 MiB.
	MaxBody int64
	// BodyWithin is how long a client may take to send its body. Default 30 s; negative leaves it to the server.
	BodyWithin time.Duration
	// MaxAnswer is the largest answer whose body is kept, in bytes; of a larger one status and headers are. Default 1 MiB.
	MaxAnswer int64
}

const (
	defaultHeader     = "Idempotency-Key"
	defaultMarker     = "Idempotent-Replayed"
	defaultMaxWaiting = 256
	defaultRetryAfter = 5 * time.Second
	defaultDeadline   = 5 * time.Minute
	defaultMaxBody    = 8 << 20
	defaultBodyWithin = 30 * time.Second
	defaultMaxAnswer  = 1 << 20
)

// settings are checked options.
type settings struct {
	header, marker string // canonical
	echoKey        bool
	problems       string
	retryAfter     time.Duration
	waiting        waitingRoom
	log            *slog.Logger
	observe        func(context.Context, Served)

	base    *route
	matcher *http.ServeMux // nil without Routes
}

// route is a checked Route.
type route struct {
	Route
	pattern string // of Options.Routes; empty for the base
	methods map[string]bool
	save    saves
	sum     fingerprinter
	headers headerFilter
	calls   []everonce.CallOption // those that are the same for every request
}

func (o *Options) settings() (*settings, error) {
	if o == nil {
		o = &Options{}
	}
	s := &settings{
		header: http.CanonicalHeaderKey(orDefault(o.Header, defaultHeader)), marker: http.CanonicalHeaderKey(orDefault(o.Marker, defaultMarker)),
		echoKey: o.EchoKey, problems: orDefault(o.ProblemBase, defaultProblemBase), retryAfter: orDefault(o.RetryAfter, defaultRetryAfter),
		log: o.Log, observe: o.Observe,
	}
	if !validFieldName(s.header) || !validFieldName(s.marker) || s.header == s.marker {
		return nil, fmt.Errorf("%w: Header %q and Marker %q must be two names of header fields", everonce.ErrInvalidArgument, o.Header, o.Marker)
	}
	if o.MaxWaiting < 0 || s.retryAfter < 0 {
		return nil, fmt.Errorf("%w: MaxWaiting and RetryAfter must not be negative", everonce.ErrInvalidArgument)
	}
	s.waiting = make(waitingRoom, orDefault(o.MaxWaiting, defaultMaxWaiting))
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	if s.base, err = o.Route.checked("", s.header); err != nil {
		return nil, fmt.Errorf("Route: %w", err)
	}
	return s, s.addRoutes(o.Routes)
}

func (s *settings) addRoutes(routes map[string]Route) (err error) {
	if len(routes) == 0 {
		return nil
	}
	s.matcher = http.NewServeMux()
	for pattern, r := range routes {
		rt, err := r.checked(pattern, s.header)
		if err != nil {
			return fmt.Errorf("Routes[%q]: %w", pattern, err)
		}
		if err := handlePattern(s.matcher, pattern, rt); err != nil {
			return err
		}
	}
	return nil
}

// handlePattern registers a route. http.ServeMux panics on a pattern that it can not read, or that
// conflicts with another.
func handlePattern(mux *http.ServeMux, pattern string, rt *route) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Routes[%q]: %v", everonce.ErrInvalidArgument, pattern, p)
		}
	}()
	mux.Handle(pattern, rt)
	return nil
}

// ServeHTTP is never called: a route is registered to be found.
func (rt *route) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (r Route) checked(pattern, keyHeader string) (*route, error) {
	rt := &route{Route: r, pattern: pattern, methods: map[string]bool{}}
	if r.Methods == nil {
		r.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range r.Methods {
		if !validFieldName(m) || m != strings.ToUpper(m) {
			return nil, fmt.Errorf("%w: %q is no method", everonce.ErrInvalidArgument, m)
		}
		rt.methods[m] = true
	}
	if r.Wait < 0 || r.AnswerWithin < 0 || r.MaxBody < 0 || r.MaxAnswer < 0 {
		return nil, fmt.Errorf("%w: Wait, AnswerWithin, MaxBody and MaxAnswer must not be negative", everonce.ErrInvalidArgument)
	}
	rt.Deadline = orDefault(r.Deadline, defaultDeadline)
	rt.MaxBody = orDefault(r.MaxBody, defaultMaxBody)
	rt.BodyWithin = orDefault(r.BodyWithin, defaultBodyWithin)
	rt.MaxAnswer = orDefault(r.MaxAnswer, defaultMaxAnswer)
	var err error
	if rt.save, err = r.Save.checked(); err != nil {
		return nil, err
	}
	if rt.sum, err = r.Fingerprint.checked(keyHeader); err != nil {
		return nil, err
	}
	if rt.headers, err = r.Header.checked(); err != nil {
		return nil, err
	}
	rt.calls = r.callOptions()
	return rt, nil
}

// callOptions are those of the core that do not depend on the request. The core checks their values.
func (r *Route) callOptions() []everonce.CallOption {
	calls := []everonce.CallOption{everonce.WithCodec(answerCodec{}), everonce.WithSummary(Answer.summary)}
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

// routeOf returns the settings of a request and the name of its route.
func (s *settings) routeOf(r *http.Request) (*route, string) {
	rt, pattern := s.base, r.Pattern
	if s.matcher != nil {
		if h, _ := s.matcher.Handler(r); h != nil {
			if found, ok := h.(*route); ok {
				rt, pattern = found, found.pattern
			}
		}
	}
	switch {
	case rt.Name != nil:
		return rt, rt.Name(r)
	case pattern != "":
		return rt, withoutMethod(pattern)
	}
	return rt, cleanPath(r.URL)
}

// withoutMethod returns the host and path of a pattern: the method of the request is a part of its own.
func withoutMethod(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return strings.TrimLeft(pattern[i:], " \t")
	}
	return pattern
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
