// Command monitored is an HTTP API that counts what became of its requests, and what waits for somebody to settle it.
package main

import (
	"context"
	"expvar"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// count returns an Observe that counts requests by what became of them.
func count(figures *expvar.Map) func(context.Context, httponce.Served) {
	return func(_ context.Context, s httponce.Served) {
		switch {
		case s.FailedOpen:
			figures.Add("failed_open", 1)
		case s.Panicked:
			figures.Add("panicked", 1)
		case s.Outcome == 0:
			figures.Add("refused_"+s.Problem, 1)
		default:
			figures.Add(s.Outcome.String(), 1)
		}
	}
}

// watch tells how much waits for somebody to settle it, and for how long the oldest has. Call it once a minute.
func watch(ctx context.Context, store *memstore.Store, abandoned, oldestSeconds *expvar.Int) error {
	h, err := store.Health(ctx, everonce.HealthRequest{})
	if err != nil {
		return err
	}
	abandoned.Set(h.Abandoned)
	oldestSeconds.Set(0)
	if !h.OldestAbandoned.IsZero() {
		oldestSeconds.Set(int64(h.Now.Sub(h.OldestAbandoned).Seconds()))
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	store := memstore.New(nil)
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	figures := new(expvar.Map) // a service publishes it: expvar.NewMap
	protect, err := httponce.Middleware(receiver, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Required: true}, Observe: count(figures),
	})
	if err != nil {
		return err
	}
	handler := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	for _, path := range []string{"/charges", "/charges", "/broken", "/broken", "/without-a-key"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("{}"))
		if path != "/without-a-key" {
			r.Header.Set("Idempotency-Key", "order-1")
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	var abandoned, oldest expvar.Int
	if err := watch(ctx, store, &abandoned, &oldest); err != nil {
		return err
	}
	figures.Do(func(kv expvar.KeyValue) { fmt.Fprintln(out, kv.Key, kv.Value) })
	fmt.Fprintln(out, "abandoned", &abandoned)
	return nil
}
