package httponce_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// wrapped returns a server whose proxy writes through another middleware's ResponseWriter, inside of a middleware that
// saves every status.
func wrapped(t *testing.T, upstream *url.URL, logs *strings.Builder, wrap func(http.ResponseWriter) http.ResponseWriter) *httptest.Server {
	t.Helper()
	p, err := httponce.Proxy(upstream, &httponce.ProxyOptions{Log: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	opts := &httponce.Options{Route: httponce.Route{Save: saveAll}, Log: slog.New(slog.DiscardHandler)}
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
