package sdks

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/internal/testing/memtx"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// row is one answer of everonce's, and how an SDK comes to it.
type row struct {
	name string
	opts httponce.Options
	// change, if set, is done to each request on its way to the service, as an intermediary might.
	change func(*http.Request)
	// first, if set, is called with the first request before it arrives: what happened earlier with its key.
	first func(s *service, r *http.Request)
	// handle is the service's handler; one that charges if it is nil.
	handle http.HandlerFunc
	// tx answers in a transaction instead.
	tx func(http.ResponseWriter) error
	// behind, if set, is what the service is a proxy in front of.
	behind func(t *testing.T) string
	// down: the store fails.
	down bool
	// success: the SDK may report a success, because the operation was done.
	success bool
}

const retryAfter = time.Second

func charge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"id":"ch_1","object":"charge","uid":"ch_1","payment":{"id":"ch_1"}}`) //nolint:errcheck // the client has gone
}

func fails(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, `{"error":{"type":"api_error","code":"own","message":"The service failed."}}`) //nolint:errcheck // the client has gone
}

// before serves a request that came earlier.
func before(s *service, r *http.Request) {
	defer func() { _ = recover() }() //nolint:errcheck // of a handler that breaks off
	s.protected.ServeHTTP(httptest.NewRecorder(), r)
}

func rows() []row {
	return []row{
		{name: "replayed", first: before, success: true},
		{name: "missing-key", opts: httponce.Options{Route: httponce.Route{Required: true}}, change: func(r *http.Request) { r.Header.Del("Idempotency-Key") }},
		{name: "invalid-key", change: func(r *http.Request) { r.Header.Set("Idempotency-Key", `"`) }},
		{name: "no-principal", opts: httponce.Options{Route: httponce.Route{Principal: func(*http.Request) (string, error) { return "", nil }}}},
		{name: "body-too-large", opts: httponce.Options{Route: httponce.Route{MaxBody: 4}}},
		{name: "key-reused", first: func(s *service, r *http.Request) {
			r.Body = io.NopCloser(bytes.NewReader([]byte("another")))
			r.ContentLength = int64(len("another"))
			before(s, r)
		}},
		{name: "in-progress", first: func(s *service, r *http.Request) {
			go before(s, r)
			<-s.entered
		}, handle: func(_ http.ResponseWriter, r *http.Request) { hang(r) }},
		{name: "outcome-unknown", first: before, handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "still-running", opts: httponce.Options{Route: httponce.Route{AnswerWithin: 50 * time.Millisecond}}, handle: func(_ http.ResponseWriter, r *http.Request) { hang(r) }},
		{name: "refused", tx: func(http.ResponseWriter) error {
			return everonce.Permanent("sold_out", errors.New("It is sold out."), nil)
		}},
		{name: "not-done", tx: func(http.ResponseWriter) error { return errors.New("the database is read-only") }},
		{name: "store-unavailable", down: true},
		{name: "elided", first: before, opts: httponce.Options{Route: httponce.Route{MaxAnswer: 4}}, success: true},
		{name: "expired", first: func(s *service, r *http.Request) {
			before(s, r)
			s.later(30 * time.Hour)
		}, success: true},
		{name: "upstream-unreachable", behind: func(*testing.T) string { return "http://127.0.0.1:1" }},
		{name: "upstream-lost", behind: upstream(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })},
		{name: "upstream-timeout", behind: upstream(func(_ http.ResponseWriter, r *http.Request) { hang(r) }), opts: httponce.Options{Route: httponce.Route{Deadline: 2 * time.Second}}},
		{name: "the handler's 500, saved", handle: fails},
		{name: "the handler's 500, unknown", handle: fails, opts: httponce.Options{Route: httponce.Route{Save: httponce.Save{"5xx": httponce.Unknown}}}},
	}
}

// hang is work that does not end before its context does. net/http ends that with the client only once the body is
// read.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) //nolint:errcheck // the client has gone
	<-r.Context().Done()
}

func upstream(h http.HandlerFunc) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
}

// service is the server of one row for one SDK.
type service struct {
	row       row
	protected http.Handler
	entered   chan struct{}

	mu       sync.Mutex
	now      time.Time
	attempts int
}

func (s *service) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// sent returns how often the SDK sent its request.
func (s *service) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

func (s *service) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func newService(t *testing.T, r row, profile httponce.Profile) *service {
	t.Helper()
	s := &service{row: r, entered: make(chan struct{}, 8), now: time.Now()}
	quiet := slog.New(slog.DiscardHandler)
	opts := r.opts
	opts.Profile, opts.RetryAfter, opts.Log = profile, retryAfter, quiet
	core := &everonce.Options{Log: quiet}
	var err error
	if r.tx != nil {
		recv, err := everonce.NewTxReceiver(memtx.New(), core)
		noErr(t, err)
		s.protected, err = httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, _ *http.Request, _ *memtx.Tx) error { return r.tx(w) }, &opts)
		noErr(t, err)
		return s
	}
	var store everonce.Store = memstore.New(&memstore.Options{Now: s.clock})
	if r.down {
		store = oncetest.FaultStore(store, func(oncetest.Call) oncetest.Fault { return oncetest.FailBefore })
	}
	recv, err := everonce.NewReceiver(store, everonce.Refuse, core)
	noErr(t, err)
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &opts)
	noErr(t, err)
	s.protected = protect(s.handler(t, profile))
	return s
}

func (s *service) handler(t *testing.T, profile httponce.Profile) http.Handler {
	t.Helper()
	if s.row.behind != nil {
		to, err := url.Parse(s.row.behind(t))
		noErr(t, err)
		p, err := proxy.New(to, &proxy.Options{StripeErrors: profile == httponce.ProfileStripe, Log: slog.New(slog.DiscardHandler)})
		noErr(t, err)
		return p
	}
	handle := s.row.handle
	if handle == nil {
		handle = charge
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.entered <- struct{}{}
		handle(w, r)
	})
}

// ServeHTTP counts what an SDK sends.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.attempts++
	n := s.attempts
	s.mu.Unlock()
	if s.row.change != nil {
		s.row.change(r)
	}
	if n == 1 && s.row.first != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		earlier := r.Clone(r.Context())
		earlier.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		s.row.first(s, earlier)
	}
	s.protected.ServeHTTP(w, r)
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
