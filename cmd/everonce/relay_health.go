package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
)

// askTimeout bounds a question to the table.
const askTimeout = 5 * time.Second

// relayFigures are what a relay shows of itself and of its table.
type relayFigures struct {
	*otelonce.Observer
	table *backlog.Table
	page  http.Handler
}

func newRelayFigures(ctx context.Context, table *backlog.Table) (*relayFigures, error) {
	provider, page, err := scrape.New()
	if err != nil {
		return nil, err
	}
	o, err := otelonce.NewObserver(provider, nil, nil)
	if err != nil {
		return nil, err
	}
	return &relayFigures{o, table, page}, o.Backlog(ctx, "outbox", table)
}

// server serves health and metrics.
func (f *relayFigures) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		if _, err := f.table.List(ctx, backlog.Filter{Limit: 1}); err != nil {
			http.Error(w, "the table cannot be reached", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", f.page)
	return &http.Server{Handler: mux, ReadHeaderTimeout: askTimeout, WriteTimeout: 2 * askTimeout}
}
