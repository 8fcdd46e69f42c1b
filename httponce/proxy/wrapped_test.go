package proxy_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// wrapped returns a server whose proxy writes through another middleware's ResponseWriter, inside a middleware that
// saves every status.
func wrapped(t *testing.T, upstream *url.URL, logs *strings.Builder, wrap func(http.ResponseWriter) http.ResponseWriter) *httptest.Server {
	t.Helper()
	p, err := proxy.New(upstream, &proxy.Options{Log: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	opts := &httponce.Options{Route: httponce.Route{Save: httponce.Save{"2xx": httponce.Saved, "5xx": httponce.Saved}}, Log: slog.New(slog.DiscardHandler)}
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.ServeHTTP(wrap(w), r) })))
	srv.Config.ErrorLog = quiet
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// oneStatus passes on the first status that it is given, and no other, as many do that log or measure.
type oneStatus struct {
	http.ResponseWriter
	given bool
}

func (w *oneStatus) WriteHeader(status int) {
	if !w.given {
		w.given = true
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *oneStatus) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *oneStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// An answer that broke off is no success, though what is in between has seen the status of one.
func TestProxyBrokenAnswerBehindAWrapper(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf", true
	})
	srv := wrapped(t, u.url, new(strings.Builder), func(w http.ResponseWriter) http.ResponseWriter { return &oneStatus{ResponseWriter: w} })
	if status, _, body := post(t, srv, "/", "k", ""); status != http.StatusBadGateway || !strings.Contains(body, "upstream-lost") {
		t.Errorf("%d %s, want 502 upstream-lost", status, body)
	}
	if status, _, _ := post(t, srv, "/", "k", ""); status != http.StatusConflict {
		t.Errorf("its repetition: %d, want 409", status)
	}
}

// If the middleware cannot learn that the upstream gave no answer, the proxy's own answer is not saved in its place,
// whatever a Save says: the connection is cut, the outcome is unknown, and the log says why.
func TestProxyBehindAWriterThatHidesTheMiddleware(t *testing.T) {
	text := func(s string) *url.URL {
		return newWireUpstream(t, func(int, wireRequest) (string, bool) { return s, true }).url
	}
	for name, upstream := range map[string]*url.URL{
		"no upstream":    {Scheme: "http", Host: refusing},
		"no answer":      text(""),
		"half of a body": text("HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf"),
	} {
		var logs strings.Builder
		srv := wrapped(t, upstream, &logs, func(w http.ResponseWriter) http.ResponseWriter { return hiding{w} })
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		if res, err := srv.Client().Do(r); err == nil {
			res.Body.Close()
			t.Errorf("%s: the client got %d, want nothing", name, res.StatusCode)
		}
		if status, header, body := post(t, srv, "/", "k", ""); status != http.StatusConflict || !strings.Contains(body, "outcome-unknown") {
			t.Errorf("%s: its repetition: %d %v %s, want 409 outcome-unknown", name, status, header, body)
		}
		srv.Close()
		if !strings.Contains(logs.String(), "Unwrap") {
			t.Errorf("%s: logged was %q", name, logs.String())
		}
	}
	srv := wrapped(t, text(wireCreated), new(strings.Builder), func(w http.ResponseWriter) http.ResponseWriter { return hiding{w} })
	for _, mark := range []string{"", "true"} {
		if status, header, body := post(t, srv, "/", "k", ""); status != http.StatusCreated || body != "done" || header.Get("Idempotent-Replayed") != mark {
			t.Errorf("an answer: %d %v %s", status, header, body)
		}
	}
}

// A body that a middleware has wrapped, and in which there is nothing, goes out as none: not in chunks, which not every
// server reads.
func TestProxyOfAnEmptyBodyThatIsWrapped(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	p, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := protected(t, nil, func(w http.ResponseWriter, r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(r.Body), -1
		p.ServeHTTP(w, r)
	})
	if res := send(h, http.MethodPost, "/", "", "Idempotency-Key", "k"); res.StatusCode != http.StatusCreated {
		t.Errorf("it got %d", res.StatusCode)
	}
	if got := u.seen(); len(got) != 1 || !strings.Contains(strings.ToLower(got[0].head), "\r\ncontent-length: 0\r\n") || strings.Contains(got[0].head, "chunked") {
		t.Errorf("the upstream got %q", got)
	}
}

// hiding is a ResponseWriter that hides the one behind it, as many logging middlewares do.
type hiding struct{ http.ResponseWriter }
