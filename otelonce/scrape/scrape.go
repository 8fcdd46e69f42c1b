// Package scrape serves OpenTelemetry metrics to Prometheus.
package scrape

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// maxSets is how many sets of labels a metric distinguishes; the others are added up under otel_metric_overflow.
const maxSets = 2000

// New returns a meter provider, and the page that shows its metrics, and the metrics of the process, in Prometheus'
// format. It registers nothing globally.
func New(opts ...metric.Option) (*metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("scrape: %w", err)
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
	return metric.NewMeterProvider(append([]metric.Option{metric.WithReader(reader), metric.WithCardinalityLimit(maxSets)}, opts...)...), page, nil
}
