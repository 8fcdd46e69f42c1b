//go:build unix

package otelonce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/memstore"
)

// replays serves one answer again and again, observed by o if that is not nil.
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

// observers returns the observers to compare. Spans are made, batched and dropped.
func observers(tb testing.TB) map[string]*otelonce.Observer {
	tb.Helper()
	meters, _, err := scrape.New()
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]*otelonce.Observer{"nothing": nil}
	for name, sampled := range map[string]float64{"figures": 0, "figures and a tenth of the traces": 0.1, "figures and traces": 1} {
		var tracers api.TracerProvider
		if sampled > 0 {
			sdk := trace.NewTracerProvider(trace.WithBatcher(tracetest.NewNoopExporter()), trace.WithSampler(trace.TraceIDRatioBased(sampled)))
			tb.Cleanup(func() { _ = sdk.Shutdown(tb.Context()) })
			tracers = sdk
		}
		if all[name], err = otelonce.NewObserver(meters, tracers, nil); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// spent returns the CPU time of this process, which, unlike elapsed time, does not depend on other processes.
func spent(tb testing.TB) time.Duration {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkReplay compares what replays cost that are observed with those that are not, block by block: over HTTP on this machine,
// with the client, where figures are to cost a tenth at most, and in memory, without a network, a client and a server.
func BenchmarkReplay(b *testing.B) {
	overHTTP := func(h http.Handler) func() {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		return func() {
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
	}
	inMemory := func(h http.Handler) func() {
		return func() {
			r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "order-1")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	for where, client := range map[string]func(http.Handler) func(){"over HTTP": overHTTP, "in memory": inMemory} {
		bare := client(replays(b, nil))
		for what, o := range observers(b) {
			observed := client(replays(b, o))
			b.Run(where+"/"+what, func(b *testing.B) {
				var took [2][]time.Duration
				for b.Loop() {
					for i, once := range []func(){bare, observed} {
						began := spent(b)
						for range 20 {
							once()
						}
						took[i] = append(took[i], (spent(b)-began)/20)
					}
				}
				slices.Sort(took[0])
				slices.Sort(took[1])
				median := len(took[0]) / 2
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(took[0][median].Nanoseconds()), "ns/bare")
				b.ReportMetric(float64(took[1][median].Nanoseconds()), "ns/observed")
				b.ReportMetric(float64(took[1][median])/float64(took[0][median]), "×bare")
				b.ReportMetric(testing.AllocsPerRun(200, observed)-testing.AllocsPerRun(200, bare), "allocs/more")
			})
		}
	}
}
