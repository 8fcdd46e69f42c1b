package otelonce

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/everonce/everonce/httponce"
)

// served has the values of a request's labels.
type served struct {
	route, outcome string
	status         int
}

// HTTP returns an Observe for [httponce.Options]. The label http.route has the given patterns of routes, written as
// for http.ServeMux or [httponce.Options].Routes, without their methods. All other routes are "other": without a
// matching pattern a route is a path, and clients choose these.
func (o *Observer) HTTP(patterns ...string) func(context.Context, httponce.Served) {
	routes := map[string]bool{}
	requests := &labels[served]{of: func(s served) []attribute.KeyValue {
		all := []attribute.KeyValue{keyRoute.String(s.route)}
		if s.outcome != "" {
			all = append(all, keyOutcome.String(s.outcome))
		}
		if s.status != 0 {
			all = append(all, keyStatus.Int(s.status))
		}
		return all
	}}
	problems := &labels[[2]string]{of: func(s [2]string) []attribute.KeyValue {
		return []attribute.KeyValue{keyRoute.String(s[0]), keyProblem.String(s[1])}
	}}
	for _, p := range append(slices.Clone(patterns), other) {
		if i := strings.IndexAny(p, " \t"); i >= 0 {
			p = strings.TrimLeft(p[i:], " \t")
		}
		routes[p] = true
		o.failedOpen.Add(context.Background(), 0, requests.get(served{route: p}).add...)
	}
	return func(ctx context.Context, s httponce.Served) {
		route := s.Route
		if !routes[route] {
			route = other
		}
		of := served{route, s.How(), s.Status}
		o.requests.Add(ctx, 1, requests.get(of).add...)
		of.status = 0
		o.requestDuration.Record(ctx, s.Duration.Seconds(), requests.get(of).record...)
		of.outcome = ""
		if s.Waited > 0 {
			o.requestWait.Record(ctx, s.Waited.Seconds(), requests.get(of).record...)
		}
		if s.Problem != "" {
			o.problems.Add(ctx, 1, problems.get([2]string{route, s.Problem}).add...)
		}
		if s.FailedOpen {
			o.failedOpen.Add(ctx, 1, requests.get(of).add...)
		}
	}
}
