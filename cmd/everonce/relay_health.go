package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/outbox"
)

// askWithin bounds a question to the table.
const askWithin = 5 * time.Second

// relayFigures are what a relay shows of itself and of its table.
type relayFigures struct {
	table    *backlog.Table
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	lags     prometheus.Histogram
	entries  *prometheus.Desc
	oldest   *prometheus.Desc
}

func newRelayFigures(table *backlog.Table) *relayFigures {
	f := &relayFigures{
		table:    table,
		registry: prometheus.NewRegistry(),
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "everonce_outbox_events_total", Help: "Events in the hands of this relay, by what became of them."}, []string{"outcome"}),
		lags: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "everonce_outbox_publish_seconds", Help: "Time from an event's insertion until this relay had claimed it, of those that were published.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 12),
		}),
		entries: prometheus.NewDesc("everonce_outbox_entries", "Events in the table that are not done, of all relays, by state.", []string{"state"}, nil),
		oldest:  prometheus.NewDesc("everonce_outbox_lag_seconds", "Age of the oldest event in the table that is due and not done.", nil, nil),
	}
	for d := outbox.Published; d <= outbox.Lost; d++ { // to increase() a counter that begins at 1 has not grown
		f.events.WithLabelValues(d.String())
	}
	f.registry.MustRegister(f.events, f.lags, f, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return f
}

// observe counts what became of an event.
func (f *relayFigures) observe(_ context.Context, _ *outbox.Event, v outbox.Verdict) {
	f.events.WithLabelValues(v.How.String()).Inc()
	if v.How == outbox.Published {
		f.lags.Observe(v.Lag.Seconds())
	}
}

// Describe is of prometheus.Collector.
func (f *relayFigures) Describe(to chan<- *prometheus.Desc) { to <- f.entries; to <- f.oldest }

// Collect is of prometheus.Collector: it counts the table. If that fails these figures are missing, and none is wrong.
func (f *relayFigures) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	s, err := f.table.Stats(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(f.entries, err)
		return
	}
	for state, n := range map[string]int{"waiting": s.Waiting, "in_hand": s.InHand, "delayed": s.Delayed, "blocked": s.Blocked, "dead": s.Dead} {
		to <- prometheus.MustNewConstMetric(f.entries, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(f.oldest, prometheus.GaugeValue, s.Lag.Seconds())
}

// server serves health and metrics.
func (f *relayFigures) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askWithin)
		defer cancel()
		if _, err := f.table.List(ctx, backlog.Filter{Limit: 1}); err != nil {
			http.Error(w, "the table cannot be reached", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.registry, promhttp.HandlerOpts{Registry: f.registry, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 2}))
	return &http.Server{Handler: mux, ReadHeaderTimeout: askWithin, WriteTimeout: 2 * askWithin}
}
