package otelonce_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/memstore"
)

// Figures for Prometheus, on a page of the service itself.
func Example() {
	ctx := context.Background()
	provider, page, err := scrape.New()
	if err != nil {
		panic(err)
	}
	observer, err := otelonce.NewObserver(provider, nil, nil)
	if err != nil {
		panic(err)
	}
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: observer})
	if err != nil {
		panic(err)
	}
	http.Handle("GET /metrics", page)

	for range 3 { // a client that repeats itself
		_, err := everonce.Do(ctx, receiver, everonce.Key{Scope: "charges", ID: "order-7"}, func(context.Context, *everonce.Attempt) (string, error) {
			return "charged", nil
		})
		if err != nil {
			panic(err)
		}
	}
	w := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "everonce_duplicates_total") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output: everonce_duplicates_total{kind="do"} 2
}
