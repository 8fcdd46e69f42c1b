package httponce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
)

// byHeader takes the principal from a header, as something in front would set it.
func byHeader(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// place is where a request goes, and from whom.
type place struct {
	account, method, host, target string
}

func (p place) request(key string) *http.Request {
	r := httptest.NewRequest(p.method, "/", strings.NewReader("{}"))
	u, err := url.ParseRequestURI(p.target)
	if err != nil {
		panic(err)
	}
	r.URL, r.RequestURI, r.Host = u, p.target, p.host
	r.Header.Set("X-Account", p.account)
	r.Header.Set("Idempotency-Key", key)
	return r
}

func (p place) String() string { return p.account + " " + p.method + " " + p.host + " " + p.target }

// ledger is a handler that tells everybody what is theirs alone, and counts.
type ledger struct{ calls int }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.calls++
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, place{r.Header.Get("X-Account"), r.Method, r.Host, r.RequestURI})
}

// placement is a way to put the middleware around a handler.
type placement struct {
	name   string
	routes []string // of Options.Routes
	wrap   func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler
}

// placements are the ways to put the middleware around a handler.
var placements = []placement{
	{name: "around a handler", wrap: func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler { return protect(h) }},
	{name: "in a mux", wrap: func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		for _, pattern := range []string{"/a", "/a/", "/w/{x}/b", "POST /payments/{id}", "admin.example.com/a", "/"} {
			mux.Handle(pattern, protect(h))
		}
		return mux
	}},
	{name: "around a mux", wrap: func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		for _, pattern := range []string{"/a", "/a/", "/w/{x}/b", "POST /payments/{id}", "admin.example.com/a", "/"} {
			mux.Handle(pattern, h)
		}
		return protect(mux)
	}},
	{
		name:   "with routes by pattern",
		routes: []string{"/a", "/a/", "/w/{x}/b", "POST /payments/{id}", "admin.example.com/a"},
		wrap:   func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler { return protect(h) },
	},
	{name: "behind prefixes", wrap: func(protect func(http.Handler) http.Handler, h http.Handler) http.Handler {
		inner := http.NewServeMux()
		inner.Handle("/{x}", protect(h))
		inner.Handle("/", protect(h))
		outer := http.NewServeMux()
		for _, prefix := range []string{"/v1", "/v2"} {
			outer.Handle(prefix+"/", http.StripPrefix(prefix, inner))
		}
		outer.Handle("/", inner)
		return outer
	}},
}

// TestTrapCrossTenantReplay is for apache/polaris#3803, arun0009/idempotent#217 and gofiber/fiber v3.1.0: an answer
// that went to one caller, or belongs to one route, is never sent to another. One key is used at every place, each
// against each, in every placement. The second is answered as its own, refused as a mismatch, or redirected.
func TestTrapCrossTenantReplay(t *testing.T) {
	places := []place{{"alice", "POST", "example.com", "/a"}}
	base := places[0]
	for _, account := range []string{"bob", "Alice", "alice/POST", "alice%2FPOST", "alice/", "/alice", "alice%", " alice", "alic\u0065\u0301", "alic\u00e9", "everybody", strings.Repeat("alice", 100), strings.Repeat("alice", 101), "alice\xff"} {
		p := base
		p.account = account
		places = append(places, p)
	}
	for _, method := range []string{"PATCH", "PUT", "DELETE", "post"} {
		p := base
		p.method = method
		places = append(places, p)
	}
	for _, host := range []string{"example.org", "admin.example.com", "example.com.", "example.com:8080"} {
		p := base
		p.host = host
		places = append(places, p)
	}
	for _, target := range []string{
		"/", "/b", "/A", "/a/", "/a/b", "/a/b/", "/a%2Fb", "/a%252Fb", "/a?x=1", "/a?", "/a?x=2", "/%61%2F", "/a;v=1", "/a;v=2", "/a%3Fx=1", "/a%00",
		"/a/1", "/a/2", "/payments/1", "/payments/2", "/v1/a", "/v2/a", "/v1/payments", "/v2/payments", "/%C3%A9", "/e%CC%81", "/a/..%2Fb", "/w/x/b", "/w/y/b", "/a%20", "/a+",
		"//a", "/a//b", "/payments//1", "/payments%2F1", "/a;v%3D1",
	} {
		p := base
		p.target = target
		places = append(places, p)
	}
	for _, placement := range placements {
		t.Run(placement.name, func(t *testing.T) {
			t.Parallel()
			h := placement.handler(t, &ledger{})
			for i, first := range places {
				for j, second := range places {
					if i != j {
						checkNoReplay(t, h, fmt.Sprint(i, "-", j), first, second)
					}
				}
			}
		})
	}
}

func (p *placement) handler(t *testing.T, inner http.Handler) http.Handler {
	t.Helper()
	var opts httponce.Options
	opts.Methods = []string{"POST", "PATCH", "PUT", "DELETE"}
	opts.Routes = map[string]httponce.Route{}
	for _, pattern := range p.routes {
		opts.Routes[pattern] = opts.Route
	}
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), byHeader, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return p.wrap(protect, inner)
}

func checkNoReplay(t *testing.T, h http.Handler, key string, first, second place) {
	t.Helper()
	for i, p := range []place{first, second} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, p.request(strconv.Quote(key)))
		switch {
		case w.Code == http.StatusCreated && w.Body.String() == p.String() && w.Header().Get("Idempotent-Replayed") == "":
		case w.Code == http.StatusTemporaryRedirect || w.Code == http.StatusNotFound || w.Code == http.StatusMethodNotAllowed:
		case w.Code == http.StatusUnprocessableEntity && i == 1:
		case p.target == "/a?" && first.target == "/a" || p.target == "/a" && first.target == "/a?": // one request
		default:
			t.Errorf("after %q, %q got %d %q %v", first, p, w.Code, w.Body, w.Header())
		}
	}
}

// Two spellings of one route are one route, in every placement: the handler runs once, and the second spelling gets the
// first's answer if the two are equivalent, and else is redirected or refused.
func TestSpellingsOfARoute(t *testing.T) {
	spellings := map[string][]string{
		"/a":             {"//a", "/./a", "/x/../a", "/%61", "/a/.", "/x//../a", "///a", "/../a"},
		"/a/b":           {"/a//b", "/a/./b", "/%61/%62", "/a/c/../b", "//a//b"},
		"/payments/1":    {"/payments/%31", "//payments/1", "/payments//1", "/%70ayments/1"},
		"/payments/a%2F": {"/payments/a%2f", "/payments/%61%2F"},
		"/e;v=1":         {"/e%3Bv=1", "/e;v%3D1", "/e%3bv%3d1"},
		"/%C3%A9":        {"/%c3%a9"},
		"/":              {"//", "/.", "/x/.."},
	}
	for _, placement := range placements {
		t.Run(placement.name, func(t *testing.T) {
			for clean, others := range spellings {
				for _, other := range others {
					for _, pair := range [][2]string{{clean, other}, {other, clean}} {
						books := &ledger{}
						h := placement.handler(t, books)
						var codes []string
						for _, target := range []string{pair[0], pair[1], pair[0], clean} {
							w := httptest.NewRecorder()
							h.ServeHTTP(w, place{"alice", "POST", "example.com", target}.request("k1"))
							codes = append(codes, strconv.Itoa(w.Code)+w.Header().Get("Idempotent-Replayed"))
						}
						if books.calls != 1 {
							t.Errorf("%q: called %d times: %v", pair, books.calls, codes)
						}
					}
				}
			}
		})
	}
}

// A mux in the middleware redirects a path that is not clean: the client follows, with its key, and is served. Later
// the key belongs to the clean path, and an equivalent path gets its answer.
func TestARedirectToTheCleanPathCanBeFollowed(t *testing.T) {
	books := &ledger{}
	mux := http.NewServeMux()
	mux.Handle("POST /a/", books)
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), byHeader, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(protect(mux))
	defer srv.Close()
	for path, again := range map[string]string{"//a/": "/a/", "/a": "/a", "/x/../a/": "/x/../a/", "//a": "//a", "/a/./": "/%61/"} {
		for i, target := range []string{path, again} {
			marker := []string{"", "true"}[i]
			r, err := http.NewRequest(http.MethodPost, srv.URL+target, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", strconv.Quote("key of "+path))
			r.Header.Set("X-Account", "alice")
			res, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if body := bodyOf(t, res); res.StatusCode != http.StatusCreated || !strings.HasSuffix(body, "/a/") || res.Header.Get("Idempotent-Replayed") != marker {
				t.Errorf("%s: %d %q %v", target, res.StatusCode, body, res.Header)
			}
			res.Body.Close()
		}
	}
	if books.calls != 5 {
		t.Errorf("called %d times, want 5", books.calls)
	}
}

// A path with a trailing slash is another request. Where both are on one route, as on a subtree of a mux, a redirect
// from one to the other is an answer, and the request that follows it is refused; where the path names the route it is
// served.
func TestARedirectToATrailingSlash(t *testing.T) {
	for status, route := range map[int]httponce.Route{
		http.StatusUnprocessableEntity: {},
		http.StatusCreated:             {Name: func(r *http.Request) string { return r.URL.Path }},
	} {
		inner, outer := http.NewServeMux(), http.NewServeMux()
		inner.Handle("POST /api/a/", &ledger{})
		protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: route})
		if err != nil {
			t.Fatal(err)
		}
		outer.Handle("/api/", protect(inner))
		srv := httptest.NewServer(outer)
		defer srv.Close()
		r, err := http.NewRequest(http.MethodPost, srv.URL+"/api/a", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != status || res.Request.URL.Path != "/api/a/" {
			t.Errorf("%s: %d, want %d", res.Request.URL, res.StatusCode, status)
		}
	}
}

// Letter case of the host is ignored; the port is a part of it; IgnoreHost makes an alias the same.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		ignore        bool
		first, second string
		status        int
	}{
		{false, "example.com", "EXAMPLE.com", 201},
		{false, "example.com", "example.org", 422},
		{false, "example.com", "example.com:8080", 422},
		{true, "example.com", "example.org", 201},
	} {
		books := &ledger{}
		opts := &httponce.Options{Route: httponce.Route{Compare: httponce.Compare{IgnoreHost: c.ignore}}}
		protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), byHeader, opts)
		if err != nil {
			t.Fatal(err)
		}
		var w *httptest.ResponseRecorder
		for _, host := range []string{c.first, c.second} {
			w = httptest.NewRecorder()
			protect(books).ServeHTTP(w, place{"alice", "POST", host, "/a"}.request("k1"))
		}
		if w.Code != c.status || books.calls != 1 {
			t.Errorf("%+v: %d, %d calls", c, w.Code, books.calls)
		}
	}
}

// A principal that is empty or not known is refused: nothing is called, nothing is read, and why is logged and not
// sent.
func TestPrincipalFailsClosed(t *testing.T) {
	for _, c := range []struct {
		name      string
		principal httponce.Principal
		logged    string
	}{
		{"empty", func(*http.Request) (string, error) { return "", nil }, "the principal is empty"},
		{"error", func(*http.Request) (string, error) { return "alice", errors.New("token expired") }, "token expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logs strings.Builder
			var told httponce.Served
			opts := &httponce.Options{
				Log:     slog.New(slog.NewTextHandler(&logs, nil)),
				Observe: func(_ context.Context, s httponce.Served) { told = s },
			}
			protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), c.principal, opts)
			if err != nil {
				t.Fatal(err)
			}
			h := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }))
			r := httptest.NewRequest(http.MethodPost, "/a", unreadable{t})
			r.Header.Set("Authorization", "Bearer s3cret")
			r.Header.Set("Idempotency-Key", "k3y")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "no-principal") || strings.Contains(w.Body.String(), c.logged) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if !strings.Contains(logs.String(), "level=INFO") || !strings.Contains(logs.String(), c.logged) || strings.Contains(logs.String(), "s3cret") || strings.Contains(logs.String(), "k3y") {
				t.Errorf("logged is %s", logs.String())
			}
			if told.Problem != "no-principal" || told.Status != http.StatusForbidden {
				t.Errorf("Observe got %+v", told)
			}
		})
	}
}

// unreadable is a body that must not be read.
type unreadable struct{ t testing.TB }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

// A panic of the principal's function is the caller's.
func TestPrincipalPanics(t *testing.T) {
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), func(*http.Request) (string, error) { panic("no database") }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p != "no database" {
			t.Errorf("recovered %v", p)
		}
	}()
	send(protect(&ledger{}), "POST", "/a", "", "Idempotency-Key", "k1")
	t.Error("it returned")
}

// A route with its own principal has that one, however its path is spelled, and no other route has it; it fails closed
// too.
func TestPrincipalOfARoute(t *testing.T) {
	opts := &httponce.Options{Routes: map[string]httponce.Route{"/payments/{id}": {Principal: byHeader}, "/orders": {}}, Log: slog.New(slog.DiscardHandler)}
	books := &ledger{}
	guarded, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := everonce.NewTxReceiver[*mapdb.Tx](mapdb.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
		books.ServeHTTP(w, r)
		return nil
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]http.Handler{"guarded": guarded(books), "transactional": tx} {
		books.calls = 0
		for _, target := range []string{"/payments/1", "//payments/1", "/payments/x/../1", "/%70ayments/1"} {
			for _, account := range []string{"alice", "bob"} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, place{account, "POST", "example.com", target}.request(strconv.Quote("of "+target)))
				if w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "" {
					t.Errorf("%s, %s, %s: %d %s %v", name, target, account, w.Code, w.Body, w.Header())
				}
			}
		}
		for i, account := range []string{"alice", "bob"} { // one principal for all: the second is answered as the first was
			w := httptest.NewRecorder()
			h.ServeHTTP(w, place{account, "POST", "example.com", "/orders"}.request("k"))
			if mark := w.Header().Get("Idempotent-Replayed"); w.Code != http.StatusCreated || (mark == "true") != (i == 1) {
				t.Errorf("%s, another route, %s: %d %v", name, account, w.Code, w.Header())
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, place{"", "POST", "example.com", "/payments/1"}.request("k"))
		if w.Code != http.StatusForbidden || books.calls != 9 {
			t.Errorf("%s: a request without a principal is answered %d, after %d calls", name, w.Code, books.calls)
		}
	}
}
