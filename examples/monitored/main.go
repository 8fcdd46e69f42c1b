// Command monitored is an HTTP API that shows Prometheus what became of its requests, and what waits for somebody to
// settle it. With an address, like localhost:8080, it goes on and serves there, for trying the dashboard and the
// alerts.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/memstore"
)

// api returns an API, and the page with its figures.
func api(store *memstore.Store) (*otelonce.Observer, http.Handler, error) {
	provider, page, err := scrape.New()
	if err != nil {
		return nil, nil, err
	}
	observer, err := otelonce.NewObserver(provider, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Observer: observer})
	if err != nil {
		return nil, nil, err
	}
	protect, err := httponce.Middleware(receiver, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Required: true}, Observe: observer.HTTP("POST /charges", "POST /broken"),
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	mux.Handle("POST /broken", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})))
	mux.Handle("GET /metrics", page) // on a separate address, if clients must not see it
	return observer, mux, nil
}

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]...); err != nil {
		log.Fatal(err)
	}
}

// run sends some requests, and prints a part of what a scraper then finds.
func run(ctx context.Context, out io.Writer, serve ...string) error {
	store := memstore.New(nil)
	observer, handler, err := api(store)
	if err != nil {
		return err
	}
	for _, path := range []string{"/charges", "/charges", "/broken", "/broken", "/charges?without-a-key"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("{}"))
		if !strings.HasSuffix(path, "without-a-key") {
			r.Header.Set("Idempotency-Key", "order-1")
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	counting, stop := context.WithCancel(ctx)
	defer stop()
	go observer.CountRecords(counting, store, time.Minute)
	for {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
		if page := w.Body.String(); ctx.Err() != nil || strings.Contains(page, "\neveronce_records") {
			if err := show(out, page); err != nil || len(serve) == 0 {
				return err
			}
			return http.ListenAndServe(serve[0], handler) //nolint:gosec // for trying
		}
	}
}

// show prints what has happened.
func show(out io.Writer, page string) error {
	for line := range strings.Lines(page) {
		for _, name := range []string{"everonce_http_requests_total", "everonce_duplicates_total", "everonce_records"} {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
				if _, err := fmt.Fprint(out, line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
