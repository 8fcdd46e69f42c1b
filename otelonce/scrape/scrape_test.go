package scrape_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/leftover"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/memstore"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func observed(t *testing.T) (*otelonce.Observer, http.Handler) {
	t.Helper()
	provider, page, err := scrape.New()
	if err != nil {
		t.Fatal(err)
	}
	o, err := otelonce.NewObserver(provider, nil, &otelonce.Options{MaxValues: 2})
	if err != nil {
		t.Fatal(err)
	}
	return o, page
}

func text(page http.Handler) string {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

func has(t *testing.T, page http.Handler, lines ...string) {
	t.Helper()
	got := text(page)
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("the page has no line %s", line)
			if name, _, _ := strings.Cut(line, "{"); t.Failed() {
				for l := range strings.Lines(got) {
					if strings.HasPrefix(l, name) {
						t.Log(l)
					}
				}
			}
		}
	}
}

// The page shows the outcomes of operations, duplicates and their delay, and what an operator must settle.
func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, page := observed(t)
		has(t, page, `everonce_operations_total{kind="do",outcome="unknown"} 0`, `everonce_store_errors_total 0`, `everonce_duplicates_total{kind="do"} 0`)
		store := memstore.New(nil)
		r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		do := func(id string, fails error) {
			_, _ = everonce.Do(t.Context(), r, everonce.Key{Scope: "charges", ID: id}, func(context.Context, *everonce.Attempt) (string, error) {
				return "", fails
			})
		}
		do("secret-1", nil)
		do("secret-2", everonce.Permanent("declined", nil, nil))
		do("secret-3", errors.New("timeout"))
		time.Sleep(2 * time.Hour)
		do("secret-1", nil)
		do("secret-2", nil)
		do("secret-3", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go o.CountRecords(ctx, store, time.Minute)
		synctest.Wait()
		has(t, page,
			`everonce_operations_total{kind="do",outcome="executed"} 1`,
			`everonce_operations_total{kind="do",outcome="replayed"} 1`,
			`everonce_operations_total{kind="do",outcome="rejected"} 2`,
			`everonce_operations_total{kind="do",outcome="unknown"} 2`,
			`everonce_operation_duration_seconds_count{kind="do",outcome="executed"} 1`,
			`everonce_duplicates_total{kind="do"} 2`,
			`everonce_repeat_delay_seconds_bucket{le="3600"} 0`,
			`everonce_repeat_delay_seconds_bucket{le="10800"} 2`,
			`everonce_operations_running 0`,
			`everonce_records{state="abandoned"} 1`,
			`everonce_records{state="completed"} 2`,
			`everonce_unknown_oldest_seconds 7200`,
		)
		if got := text(page); strings.Contains(got, "secret") || strings.Contains(got, "charges") {
			t.Error("the page has a key or a scope")
		}
		time.Sleep(90 * time.Second)
		has(t, page, `everonce_unknown_oldest_seconds 7290`)
		cancel()
		o.Counted(driver.HealthResult{}, everonce.ErrStore)
		if strings.Contains(text(page), "everonce_records") {
			t.Error("records are shown without a count")
		}
	})
}

// Rare events are counted too, each once.
func TestRareEvents(t *testing.T) {
	o, page := observed(t)
	for _, ev := range []everonce.Observation{
		{Outcome: everonce.StoreFailed},
		{Outcome: everonce.NotRecorded, LeaseLost: true, RenewFailures: 2, Retries: 3},
	} {
		ev.Kind = "do"
		o.End(o.Start(t.Context(), ev.Op), ev)
	}
	o.Purged(janitor.Result{Records: 4}, everonce.ErrStore)
	has(t, page,
		`everonce_store_errors_total 2`, `everonce_not_recorded_total 1`, `everonce_leases_lost_total 1`, `everonce_lease_renew_failures_total 2`,
		`everonce_store_retries_total 3`, `everonce_purged_records_total 4`, `everonce_janitor_errors_total 1`, `everonce_count_errors_total 0`)
}

// A route's label is the route as given, without its method. A path without a pattern is "other".
func TestRoutes(t *testing.T) {
	o, page := observed(t)
	patterns := []string{"POST /payments/{id}", "PUT\tapi.example.com/", "the caller's"}
	tell := o.HTTP(patterns[:2]...)
	if patterns[2] != "the caller's" {
		t.Errorf("the caller's patterns are %q now", patterns)
	}
	has(t, page, `everonce_http_failed_open_total{http_route="/payments/{id}"} 0`)
	for _, s := range []httponce.Served{
		{Route: "/payments/{id}", Status: 201, Outcome: everonce.Executed},
		{Route: "/payments/{id}", Status: 201, Outcome: everonce.Replayed, Duration: 3 * time.Second, Waited: 2 * time.Second},
		{Route: "api.example.com/", FailedOpen: true},
		{Route: "/payments/7", Panicked: true},
		{Route: "/payments/8", Status: 400, Problem: "missing-key"},
	} {
		tell(t.Context(), s)
	}
	has(t, page,
		`everonce_http_requests_total{http_response_status_code="201",http_route="/payments/{id}",outcome="replayed"} 1`,
		`everonce_http_request_duration_seconds_sum{http_route="/payments/{id}",outcome="replayed"} 3`,
		`everonce_http_wait_duration_seconds_sum{http_route="/payments/{id}"} 2`,
		`everonce_http_failed_open_total{http_route="api.example.com/"} 1`,
		`everonce_http_requests_total{http_route="other",outcome="aborted"} 1`,
		`everonce_http_requests_total{http_response_status_code="400",http_route="other",outcome="refused"} 1`,
		`everonce_http_problems_total{http_route="other",problem="missing-key"} 1`)
}
