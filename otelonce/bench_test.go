package otelonce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/memstore"
)

// replays serves one answer again and again, observed by o, or by nobody.
func replays(tb testing.TB, o *otelonce.Observer) http.Handler {
	tb.Helper()
	receive, serve := &everonce.Options{}, &httponce.Options{}
	if o != nil {
		receive.Observer, serve.Observe = o, o.HTTP("/payments")
	}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, receive)
	if err != nil {
		tb.Fatal(err)
	}
	protect, err := httponce.Middleware(r, httponce.Unscoped(), serve)
	if err != nil {
		tb.Fatal(err)
	}
	return protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 200)) }))
}

// observers are those that are compared. A tracer's spans are made and dropped.
func observers(tb testing.TB) map[string]*otelonce.Observer {
	tb.Helper()
	meters, _, err := scrape.New()
	if err != nil {
		tb.Fatal(err)
	}
	figures, err := otelonce.NewObserver(meters, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tracers := trace.NewTracerProvider(trace.WithBatcher(tracetest.NewNoopExporter()))
	tb.Cleanup(func() { _ = tracers.Shutdown(tb.Context()) })
	traced, err := otelonce.NewObserver(meters, tracers, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]*otelonce.Observer{"bare": nil, "figures": figures, "figures and traces": traced}
}

// BenchmarkReplay is a replay over HTTP on this machine, by one client. Observed it takes at most 10 % longer.
func BenchmarkReplay(b *testing.B) {
	for name, o := range observers(b) {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(replays(b, o))
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequest(http.MethodPost, s.URL+"/payments", strings.NewReader("{}"))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", "order-1")
				res, err := s.Client().Do(r)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}

// BenchmarkReplayInMemory is the same without a network, a client and a server: what observing costs is most of the difference.
func BenchmarkReplayInMemory(b *testing.B) {
	for name, o := range observers(b) {
		b.Run(name, func(b *testing.B) {
			h := replays(b, o)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
				r.Header.Set("Idempotency-Key", "order-1")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
