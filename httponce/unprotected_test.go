package httponce_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A request that its sender may believe protected, and that passes by its method, is warned of once for each route.
func TestARequestThatPassesByItsMethodIsWarnedOf(t *testing.T) {
	required, exempt := httponce.Route{Required: true}, httponce.Route{Required: true, Methods: []string{}}
	for name, c := range map[string]struct {
		route      httponce.Route
		method     string
		key        string
		wantWarned bool
	}{
		"PUT with a key":                {method: http.MethodPut, key: "k", wantWarned: true},
		"DELETE with a key":             {method: http.MethodDelete, key: "k", wantWarned: true},
		"PUT without a key":             {method: http.MethodPut},
		"PUT where a key is required":   {route: required, method: http.MethodPut, wantWarned: true},
		"PUT where the route is exempt": {route: exempt, method: http.MethodPut, key: "k"},
		"GET with a key":                {route: required, method: http.MethodGet, key: "k"},
		"POST with a key":               {method: http.MethodPost, key: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
			if err != nil {
				t.Fatal(err)
			}
			protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
				Route: c.route, Routes: map[string]httponce.Route{"/b": c.route}, Log: slog.New(slog.NewTextHandler(&logs, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			h := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
			for _, path := range []string{"/a", "/a", "/b", "/b"} {
				r := httptest.NewRequest(c.method, path, nil)
				if c.key != "" {
					r.Header.Set("Idempotency-Key", c.key)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			want := 0
			if c.wantWarned {
				want = 2
			}
			if got := strings.Count(logs.String(), "passes unprotected"); got != want {
				t.Errorf("%d warnings, want %d:\n%s", got, want, &logs)
			}
			if heeded := c.method == http.MethodPost; !heeded && calls != 4 {
				t.Errorf("the handler was called %d times", calls)
			}
		})
	}
}
