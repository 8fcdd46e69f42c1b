package proxy

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
)

// metrics are what /metrics shows: what otelonce shows of every service, and what passes without a key. No label has a
// key, a path or a principal: routes are the configured patterns, and "other".
type metrics struct {
	*otelonce.Observer
	page    http.Handler
	served  func(context.Context, httponce.Served)
	unkeyed metric.Int64Counter
	routes  map[string]bool
}

const otherRoute = "other"

// newMetrics panics where OpenTelemetry refuses what is the same at every start.
func newMetrics(patterns []string) *metrics {
	provider, page, err := scrape.New()
	if err != nil {
		panic(err)
	}
	o, err := otelonce.NewObserver(provider, nil, nil)
	if err != nil {
		panic(err)
	}
	unkeyed, err := provider.Meter("everonce proxy").Int64Counter("everonce.proxy.unkeyed.requests", metric.WithDescription("Requests that passed without a key."))
	if err != nil {
		panic(err)
	}
	m := &metrics{Observer: o, page: page, served: o.HTTP(patterns...), unkeyed: unkeyed, routes: map[string]bool{}}
	for _, p := range patterns {
		m.routes[withoutMethod(p)] = true
	}
	return m
}

// withoutKey counts a request without a key. Its status is 0 if it got none.
func (m *metrics) withoutKey(ctx context.Context, status int) {
	m.unkeyed.Add(ctx, 1, metric.WithAttributes(attribute.Int("http.response.status_code", status)))
}

// route is how the log names a route.
func (m *metrics) route(name string) string {
	if m.routes[name] {
		return name
	}
	return otherRoute
}

// withoutMethod returns the host and path of a pattern, as a route is named.
func withoutMethod(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return strings.TrimLeft(pattern[i:], " \t")
	}
	return pattern
}
