package httponce_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// medium is a body that is kept in memory, as long as there is room for it.
var medium = strings.Repeat("0123456789", 20<<10)

// waitingClient is what a handler may do to its client, or wait for.
type waitingClient struct {
	leave    func()
	answered chan struct{}
}

// A body of up to 1 MiB touches no file, and what it takes of the memory for all is given back however its request
// ends.
func TestMemoryOfARequestIsGivenBack(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/is/not/there")
	for name, c := range map[string]struct {
		route   httponce.Route
		outside func(http.Handler) http.Handler
		body    io.Reader // what comes in place of the medium one
		handle  func(w http.ResponseWriter, r *http.Request, c *waitingClient)
	}{
		"answers": {handle: func(http.ResponseWriter, *http.Request, *waitingClient) {}},
		"panics":  {handle: func(http.ResponseWriter, *http.Request, *waitingClient) { panic(http.ErrAbortHandler) }},
		"streams": {handle: func(w http.ResponseWriter, _ *http.Request, _ *waitingClient) { http.NewResponseController(w).Flush() }},
		"takes over": {handle: func(w http.ResponseWriter, _ *http.Request, _ *waitingClient) {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				c.Close()
			}
		}},
		"is answered too late": {route: httponce.Route{AnswerWithin: time.Millisecond, Wait: -1}, handle: func(_ http.ResponseWriter, _ *http.Request, c *waitingClient) {
			<-c.answered
		}},
		"loses its client": {route: httponce.Route{EndWithClient: true}, handle: func(_ http.ResponseWriter, r *http.Request, c *waitingClient) {
			c.leave()
			<-r.Context().Done()
		}},
		"has a key that cannot be found": {route: httponce.Route{
			KeyFrom: func(*http.Request, []byte) (string, error) { panic(http.ErrAbortHandler) },
		}},
		"has a key that cannot be checked": {route: httponce.Route{
			KeyFrom:  func(*http.Request, []byte) (string, error) { return "k1", nil },
			CheckKey: func(string) error { panic(http.ErrAbortHandler) },
		}},
		"has a sender that cannot be known": {route: httponce.Route{
			KeyFrom:   func(*http.Request, []byte) (string, error) { return "k1", nil },
			Principal: func(*http.Request) (string, error) { panic(http.ErrAbortHandler) },
		}},
		"too large":  {route: httponce.Route{MaxBody: 100 << 10}},
		"broken off": {body: io.MultiReader(strings.NewReader(medium), iotest.ErrReader(io.ErrUnexpectedEOF))},
		"panicking":  {body: io.MultiReader(strings.NewReader(medium), panicking{})},
		"panicking behind a writer that hides": {
			body: io.MultiReader(strings.NewReader(medium), panicking{}),
			outside: func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hiding{w}, r) })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var called atomic.Bool
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			client := &waitingClient{leave, make(chan struct{})}
			protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: c.route})
			if err != nil {
				t.Fatal(err)
			}
			h := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called.Store(true)
				if httponce.BodyMemory() < int64(len(medium)) {
					t.Error("the body takes nothing: the test is blind")
				}
				if n, err := io.Copy(io.Discard, r.Body); n != int64(len(medium)) || err != nil {
					t.Errorf("the handler reads %d bytes, %v", n, err)
				}
				c.handle(w, r, client)
			}))
			if c.outside != nil {
				h = c.outside(h)
			}
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.body != nil {
					r.Body, r.ContentLength = io.NopCloser(c.body), -1
				}
				h.ServeHTTP(w, r)
			}))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.Start()
			defer srv.Close()
			for range 2 { // the second is a replay, or is refused
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(medium))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", "k1")
				if res, err := srv.Client().Do(r); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if c.body != nil {
					break // it has been read
				}
			}
			close(client.answered)
			if called.Load() != (c.handle != nil) {
				t.Errorf("called is %v", called.Load())
			}
			for begun := time.Now(); httponce.BodyMemory() != 0; runtime.Gosched() { // the end of a request may be seen before its handler's
				if time.Since(begun) > 10*time.Second {
					t.Fatalf("%d bytes are kept", httponce.BodyMemory())
				}
			}
		})
	}
}
