package proxy

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
)

// metrics are what /metrics shows. No label has a key, a path or a principal: routes are the configured patterns,
// and "other".
type metrics struct {
	registry *prometheus.Registry
	routes   map[string]bool
	names    []string

	keyed, unkeyed, problems  *prometheus.CounterVec
	failedOpen, notRecorded   *prometheus.CounterVec
	seconds                   *prometheus.HistogramVec
	waits                     *prometheus.HistogramVec
	storeErrors, storeRetries prometheus.Counter
	renewFailures, leasesLost prometheus.Counter
	running                   prometheus.Gauge
	records                   *prometheus.GaugeVec
	purged                    prometheus.Counter
	janitorErrors             prometheus.Counter
	countErrors               prometheus.Counter
}

const otherRoute = "other"

func newMetrics(patterns []string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), routes: map[string]bool{}}
	for _, p := range patterns {
		m.routes[withoutMethod(p)] = true
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		m.names = append(m.names, name)
		return c
	}
	counter := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}, labels)
		m.registry.MustRegister(h)
		m.names = append(m.names, name)
		return h
	}
	m.keyed = counters("everonce_proxy_requests_total", "Requests with a key, by what became of them.", "route", "outcome", "code")
	m.unkeyed = counters("everonce_proxy_unkeyed_requests_total", "Requests that passed without a key.", "code")
	m.problems = counters("everonce_proxy_problems_total", "Answers of the proxy's own to requests with a key, by their problem.", "route", "problem")
	m.failedOpen = counters("everonce_proxy_failed_open_total", "Requests that passed UNPROTECTED because the store was down.", "route")
	m.notRecorded = counters("everonce_proxy_not_recorded_total", "Answers that were sent and could not be kept.", "route")
	m.seconds = histogram("everonce_proxy_request_seconds", "Time from a request's head to the end of its answer.", "route", "outcome")
	m.waits = histogram("everonce_proxy_wait_seconds", "Time that repetitions waited for the first one.", "route")
	m.storeErrors = counter("everonce_store_errors_total", "Operations that ended because the store failed.")
	m.storeRetries = counter("everonce_store_retries_total", "Calls of the store that were repeated.")
	m.renewFailures = counter("everonce_lease_renew_failures_total", "Renewals of a lease that failed.")
	m.leasesLost = counter("everonce_leases_lost_total", "Attempts that lost their record to another.")
	m.purged = counter("everonce_purged_records_total", "Records that time has let go.")
	m.janitorErrors = counter("everonce_janitor_errors_total", "Rounds of the janitor that failed.")
	m.countErrors = counter("everonce_count_errors_total", "Counts of the records that failed; until one succeeds there is no everonce_records.")
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(g)
		m.names = append(m.names, name)
		return g
	}
	m.running = gauge("everonce_operations_running", "Operations that run or wait.").WithLabelValues()
	m.records = gauge("everonce_records", "Records by state, counted about once a minute, or more seldom if that takes long. Those that are abandoned are unknown: they wait for somebody to settle them or, under reexecute, for their client to come again.", "state")
	m.fromZero()
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// fromZero shows what an alert waits for before it has happened: to increase() a counter that begins at 1 has not grown.
func (m *metrics) fromZero() {
	m.failedOpen.WithLabelValues(otherRoute)
	m.notRecorded.WithLabelValues(otherRoute)
	for route := range m.routes {
		m.failedOpen.WithLabelValues(route)
		m.notRecorded.WithLabelValues(route)
	}
}

// withoutMethod returns the host and path of a pattern, as a route is named.
func withoutMethod(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return strings.TrimLeft(pattern[i:], " \t")
	}
	return pattern
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

func (m *metrics) route(name string) string {
	if m.routes[name] {
		return name
	}
	return otherRoute
}

// served counts a request with a key.
func (m *metrics) served(s httponce.Served) {
	route, outcome := m.route(s.Route), outcomeName(s)
	m.keyed.WithLabelValues(route, outcome, codeClass(s.Status)).Inc()
	m.seconds.WithLabelValues(route, outcome).Observe(s.Duration.Seconds())
	if s.Waited > 0 {
		m.waits.WithLabelValues(route).Observe(s.Waited.Seconds())
	}
	if s.Problem != "" {
		m.problems.WithLabelValues(route, s.Problem).Inc()
	}
	if s.FailedOpen {
		m.failedOpen.WithLabelValues(route).Inc()
	}
	if s.Outcome == everonce.NotRecorded {
		m.notRecorded.WithLabelValues(route).Inc()
	}
}

// outcomeName is the outcome, also of what was refused before there was one.
func outcomeName(s httponce.Served) string {
	switch {
	case s.FailedOpen:
		return "failed_open"
	case s.Panicked:
		return "aborted"
	case s.Outcome == 0:
		return "refused"
	}
	return s.Outcome.String()
}

func codeClass(status int) string {
	if status < 100 || status > 999 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// Start is of everonce.Observer.
func (m *metrics) Start(ctx context.Context, _ everonce.Op) context.Context {
	m.running.Inc()
	return ctx
}

// End is of everonce.Observer.
func (m *metrics) End(_ context.Context, ev everonce.Event) {
	m.running.Dec()
	m.storeRetries.Add(float64(ev.Retries))
	m.renewFailures.Add(float64(ev.RenewFailures))
	if ev.Outcome == everonce.StoreFailed || ev.Outcome == everonce.NotRecorded {
		m.storeErrors.Inc()
	}
	if ev.LeaseLost {
		m.leasesLost.Inc()
	}
}

// uncounted shows that nobody knows how many records there are.
func (m *metrics) uncounted() {
	m.countErrors.Inc()
	m.records.Reset()
}

// counted shows the records of a store.
func (m *metrics) counted(h driver.HealthResult) {
	for state, n := range map[string]int64{"claimed": h.Claimed, "abandoned": h.Abandoned, "released": h.Released, "completed": h.Completed, "unreadable": h.Unreadable} {
		m.records.WithLabelValues(state).Set(float64(n))
	}
}
