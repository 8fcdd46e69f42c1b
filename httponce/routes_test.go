package httponce

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

func TestRouteOf(t *testing.T) {
	opts := &Options{
		Route: Route{MaxBody: 1},
		Routes: map[string]Route{
			"POST /payments/{id}":             {MaxBody: 2},
			"/tree/":                          {MaxBody: 3},
			"POST api.example.com/payments/1": {MaxBody: 4},
			"PATCH \t /exact/{$}":             {MaxBody: 5},
			"/named":                          {MaxBody: 6, Name: func(r *http.Request) string { return r.URL.Query().Get("name") }},
			"POST api.example.com/{a...}":     {MaxBody: 7},
			"CONNECT example.com/":            {MaxBody: 8, Methods: []string{"CONNECT"}},
			"CONNECT example.net/b":           {MaxBody: 11, Methods: []string{"CONNECT"}},
			"POST Shop.example.com/B/{$}":     {MaxBody: 9},
			"POST full.example.com./a":        {MaxBody: 10},
		},
	}
	s, err := opts.settings()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, host, target, pattern string
		max                           int64
		name                          string
	}{
		{"POST", "example.com", "/payments/1", "", 2, "/payments/{id}"},
		{"POST", "example.com:8080", "/payments/2", "", 2, "/payments/{id}"},
		{"POST", "example.com", "//payments/./1", "", 2, "/payments/{id}"},              // a mux would redirect
		{"POST", "example.com", "/payments/%2e%2e/payments/1", "", 2, "/payments/{id}"}, // what is behind a mux might clean it
		{"POST", "example.com", "/payments/a%2Fb", "", 2, "/payments/{id}"},
		{"PATCH", "example.com", "/payments/1", "", 1, "/payments/1"}, // a mux: 405
		{"POST", "example.com", "/payments/1/", "", 1, "/payments/1/"},
		{"POST", "example.com", "/Payments/1", "", 1, "/Payments/1"},
		{"POST", "example.com", "/tree/a/b", "", 3, "/tree/"},
		{"POST", "example.com", "/tree/", "", 3, "/tree/"},
		{"POST", "example.com", "/tree", "", 1, "/tree"}, // a mux would redirect: another route until it has
		{"POST", "example.com", "//tree", "", 1, "/tree"},
		{"POST", "api.example.com", "/payments/1", "", 4, "api.example.com/payments/1"},
		{"POST", "api.example.com:443", "/payments/2", "", 7, "api.example.com/{a...}"},
		{"POST", "API.Example.com:443", "/payments/2", "", 7, "api.example.com/{a...}"}, // it is the same host
		{"POST", "api.example.com.", "/payments/2", "", 7, "api.example.com/{a...}"},    // and so is this, in full
		{"POST", "API.example.com.:443", "//payments/1", "", 4, "api.example.com/payments/1"},
		{"POST", "full.example.com", "/a", "", 10, "full.example.com./a"},
		{"POST", "Full.example.com.:80", "/a", "", 10, "full.example.com./a"},
		{"POST", "[::1]:443", "/payments/1", "", 2, "/payments/{id}"},
		{"POST", "API.Example.com", "//payments/1", "", 4, "api.example.com/payments/1"},
		{"POST", "shop.example.com", "/B/", "", 9, "Shop.example.com/B/{$}"},
		{"POST", "SHOP.example.com", "/b/", "", 1, "/b/"},
		{"PATCH", "example.com", "/exact/", "", 5, "/exact/{$}"},
		{"PATCH", "example.com", "/exact/a", "", 1, "/exact/a"},
		{"POST", "example.com", "/named?name=n", "", 6, "n"},
		{"POST", "example.com", "/named", "", 6, "/named"},
		{"POST", "example.com", "/other", "", 1, "/other"},
		{"POST", "example.com", "/other", "POST /{x}", 1, "/{x}"}, // routed before it came here
		{"POST", "example.com", "/other", "example.com/{x}", 1, "example.com/{x}"},
		{"POST", "example.com", "/payments/1", "/", 2, "/payments/{id}"},
		{"CONNECT", "example.com", "/a", "", 8, "example.com/"},
		{"CONNECT", "example.net", "//b", "", 1, "/b"}, // unchanged
		{"CONNECT", "example.org", "//a", "", 1, "/a"},
		{"POST", "example.com", "*", "", 1, "/%2A"},
	} {
		u, err := url.ParseRequestURI(c.target)
		if err != nil {
			t.Fatal(err)
		}
		rt, name := s.routeOf(&http.Request{Method: c.method, Host: c.host, URL: u, Pattern: c.pattern})
		if rt.MaxBody != c.max || name != c.name {
			t.Errorf("%s %s %s: the settings of %q (%d) and the name %q, want %d and %q", c.method, c.host, c.target, rt.pattern, rt.MaxBody, name, c.max, c.name)
		}
	}
	if rt, name := s.routeOf(&http.Request{Method: http.MethodConnect, Host: "example.net:443", URL: &url.URL{Host: "example.net:443"}}); rt != s.base || name != "/" {
		t.Errorf("CONNECT without a path: %q", name)
	}
}

// The position of the middleware determines the name under the zero Options.
func TestPlacementsOfTheMiddleware(t *testing.T) {
	for _, c := range []struct {
		name   string
		inside bool
		want   string
	}{
		{"inside a mux", true, "/orders/{id}"},
		{"around a mux", false, "/orders/7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := (*Options)(nil).settings()
			if err != nil {
				t.Fatal(err)
			}
			var got string
			watch := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, got = s.routeOf(r)
					next.ServeHTTP(w, r)
				})
			}
			mux := http.NewServeMux()
			var h http.Handler = mux
			end := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			if c.inside {
				mux.Handle("POST /orders/{id}", watch(end))
			} else {
				mux.Handle("POST /orders/{id}", end)
				h = watch(mux)
			}
			h.ServeHTTP(nil, &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/orders/7"}})
			if got != c.want {
				t.Errorf("the route is %q, want %q", got, c.want)
			}
		})
	}
}

// A pattern that no mux reads is an error that names it.
func TestBadPatterns(t *testing.T) {
	for _, patterns := range [][]string{{""}, {"payments"}, {"POST"}, {"GET /{"}, {"/{x}/{x}"}, {"/{x}/b", "/a/{y}"}, {"POST\t/a", "POST /a"}} {
		opts := &Options{Routes: map[string]Route{}}
		for _, p := range patterns {
			opts.Routes[p] = Route{}
		}
		_, err := opts.settings()
		if !errors.Is(err, everonce.ErrInvalidArgument) || strings.Contains(err.Error(), ".go") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), patterns[0][:len(patterns[0])/2]) || !strings.HasPrefix(err.Error(), "httponce: route ") {
			t.Errorf("%q: %v", patterns, err)
		}
	}
}

// A pattern whose method takes no key would protect nothing, whatever else its route says.
func TestPatternOfAMethodThatTakesNoKey(t *testing.T) {
	for _, c := range []struct {
		pattern string
		methods []string
		refused bool
	}{
		{"PUT /payments/{id}", nil, true},
		{"DELETE\t/payments/{id}", nil, true},
		{"POST /payments", []string{"PUT"}, true},
		{"PUT /payments/{id}", []string{"PUT"}, false},
		{"PUT /payments/{id}", []string{}, false}, // exempt, and it says so
		{"/payments/{id}", []string{"PUT"}, false},
	} {
		opts := &Options{Routes: map[string]Route{c.pattern: {Methods: c.methods, Required: true}}}
		_, err := opts.settings()
		if refused := errors.Is(err, everonce.ErrInvalidArgument) && strings.Contains(err.Error(), "takes no key"); refused != c.refused || !refused && err != nil {
			t.Errorf("%q with the methods %q: %v, want it refused: %v", c.pattern, c.methods, err, c.refused)
		}
	}
}
