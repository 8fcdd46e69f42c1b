package httponce_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// protected returns a handler behind a new middleware.
func protected(t testing.TB, opts *httponce.Options, h http.HandlerFunc) http.Handler {
	t.Helper()
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return protect(h)
}

func again(h http.Handler, key string, headers ...string) *http.Response {
	return send(h, "POST", "/", "{}", append([]string{"Idempotency-Key", key}, headers...)...)
}

// Trap: Set-Cookie replayed. A header that starts a session, proves one exchange, or belongs to one connection is sent
// once, with the first answer.
func TestTrapSetCookieIsNotReplayed(t *testing.T) {
	never := []string{
		"Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "WWW-Authenticate", "Authentication-Info", "Authorization",
		"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Keep-Alive", "Proxy-Connection", "TE", "Transfer-Encoding", "Upgrade", "Date", "X-Hop",
		"set-cookie", // as some code writes it, past the canonical form
	}
	for name, policy := range map[string]httponce.HeaderPolicy{"default": {}, "allowed by name": {Allow: never}} {
		h := protected(t, &httponce.Options{Route: httponce.Route{Header: policy}}, func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range never {
				w.Header()[name] = []string{"secret"}
			}
			w.Header().Set("Connection", "close, X-Hop")
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "ok")
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"Set-Cookie", "secret")
		})
		first, replay := again(h, "k"), again(h, "k")
		if first.Header.Get("Set-Cookie") != "secret" {
			t.Errorf("%s: the first client got no cookie: %v", name, first.Header)
		}
		for _, name := range append(never, "Connection") {
			if v, there := replay.Header[name]; there {
				t.Errorf("%s: the replay has %s: %v", name, name, v)
			}
		}
		if body := bodyOf(t, replay); body != "ok" || replay.Trailer.Get("Set-Cookie") != "" || policy.Allow == nil && replay.Trailer.Get("X-Sum") != "1" {
			t.Errorf("%s: the replay is %q, and then %v", name, body, replay.Trailer)
		}
	}
}

// Trap: Location lost on replay. No policy takes it away, and neither does eliding; nor the Content-Type, which would
// be guessed anew.
func TestTrapLocationIsNotLost(t *testing.T) {
	for name, route := range map[string]httponce.Route{
		"default": {}, "denied": {Header: httponce.HeaderPolicy{Deny: []string{"Location", "Content-Type"}}},
		"not allowed": {Header: httponce.HeaderPolicy{Allow: []string{"X-A"}}}, "elided": {MaxAnswer: 1},
	} {
		h := protected(t, &httponce.Options{Route: route}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/payments/1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `"<html>"`)
		})
		for range 3 {
			if res := again(h, "k"); res.StatusCode != http.StatusCreated || res.Header.Get("Location") != "/payments/1" || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %v", name, res.StatusCode, res.Header)
			}
		}
	}
}

// A handler may write names that are not canonical, and net/http sends them unchanged. The rules hold for such names
// too: a replay without a body has no length of a body, which would be a second Content-Length, and a connection's own
// headers are not replayed.
func TestNamesInOtherSpellings(t *testing.T) {
	srv := httptest.NewServer(protected(t, &httponce.Options{Route: httponce.Route{MaxAnswer: 1}}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["content-length"] = []string{"7"}
		w.Header()["connection"] = []string{"x-hop"}
		w.Header()["X-Hop"] = []string{"secret"}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "created")
	}))
	defer srv.Close()
	for _, want := range []string{"created", ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := bodyOf(t, res); res.StatusCode != http.StatusCreated || body != want || want == "" && res.Header.Get("X-Hop") != "" {
			t.Errorf("%d %v %q, want %q", res.StatusCode, res.Header, body, want)
		}
		_ = res.Body.Close()
	}
}

// Lists choose what is saved, by any spelling.
func TestHeaderLists(t *testing.T) {
	for name, tc := range map[string]struct {
		policy httponce.HeaderPolicy
		want   http.Header
	}{
		"all":   {httponce.HeaderPolicy{}, http.Header{"X-A": {"1"}, "x-b": {"2"}, "X-C": {"3", "4"}}},
		"allow": {httponce.HeaderPolicy{Allow: []string{"x-a", "X-B"}}, http.Header{"X-A": {"1"}, "x-b": {"2"}}},
		"none":  {httponce.HeaderPolicy{Allow: []string{}}, http.Header{}},
		"deny":  {httponce.HeaderPolicy{Deny: []string{"X-B", "x-c"}}, http.Header{"X-A": {"1"}}},
		"both":  {httponce.HeaderPolicy{Allow: []string{"X-A", "X-C"}, Deny: []string{"X-A"}}, http.Header{"X-C": {"3", "4"}}},
	} {
		h := protected(t, &httponce.Options{Route: httponce.Route{Header: tc.policy}}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "1")
			w.Header()["x-b"] = []string{"2"}
			w.Header()["X-C"] = []string{"3", "4"}
			w.WriteHeader(http.StatusNoContent)
		})
		again(h, "k")
		got := again(h, "k").Header
		got.Del("Idempotent-Replayed")
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for _, bad := range []httponce.HeaderPolicy{{Allow: []string{"a b"}}, {Deny: []string{""}}, {Deny: []string{"X:"}}} {
		if _, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: httponce.Route{Header: bad}}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// Headers set by outer middlewares are fresh: each request gets its own. The handler's additions, changes and removals
// are the handler's.
func TestHeadersOfOuterMiddlewaresAreFresh(t *testing.T) {
	inner := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Changed", "by the handler")
		h.Del("X-Removed")
		h.Add("Vary", "Accept")
		h.Set("X-Own", "own")
		w.WriteHeader(http.StatusAccepted)
		h.Set("X-Too-Late", "ignored")
	})
	n := 0
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		id := strings.Repeat("i", n)
		for _, name := range []string{"X-Request-ID", "X-Changed", "X-Removed"} {
			w.Header().Set(name, id)
		}
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Add("Vary", "Origin"+id)
		w.Header().Set("Access-Control-Expose-Headers", "X-Request-ID")
		inner.ServeHTTP(w, r)
	})
	for i, id := range []string{"i", "ii", "iii"} {
		res := again(outer, "k", "Origin", "https://"+id)
		want := http.Header{
			"X-Request-Id": {id}, "X-Changed": {"by the handler"}, "Vary": {"Origin" + id, "Accept"}, "X-Own": {"own"},
			"Access-Control-Allow-Origin": {"https://" + id}, "Access-Control-Expose-Headers": {"X-Request-ID"},
		}
		if i > 0 {
			want["Idempotent-Replayed"] = []string{"true"}
			want["Access-Control-Expose-Headers"] = []string{"X-Request-ID", "Idempotent-Replayed"}
		}
		if !reflect.DeepEqual(res.Header, want) || res.StatusCode != http.StatusAccepted {
			t.Errorf("answer %d:\n%v, want\n%v", i, res.Header, want)
		}
	}
	// An answer of ours has nothing of the handler's that was dropped.
	if res := send(outer, "POST", "/", "another body", "Idempotency-Key", "k"); res.Header.Get("X-Own") != "" || res.Header.Get("X-Request-ID") != "iiii" {
		t.Errorf("a refusal: %v", res.Header)
	}
}

// The marker has the name that was asked for, and the key comes back where that was.
func TestMarkerAndEcho(t *testing.T) {
	h := protected(t, &httponce.Options{Marker: "X-Replay", EchoKey: true}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", "a")
		r.Header.Set("Idempotency-Key", "its own for another service")
		if r.Header.Get("X-Stream") != "" {
			_ = http.NewResponseController(w).Flush()
		}
	})
	for i, want := range []string{"", "true", "true"} {
		if res := again(h, `"k"`); res.Header.Get("X-Replay") != want || res.Header.Get("Idempotency-Key") != `"k"` || res.Header.Get("X-A") != "a" {
			t.Errorf("answer %d: %v", i, res.Header)
		}
	}
	for i, want := range []string{"", "elided"} {
		if res := again(h, "stream", "X-Stream", "1"); res.Header.Get("X-Replay") != want || res.Header.Get("Idempotency-Key") != "stream" {
			t.Errorf("answer %d of a stream: %v", i, res.Header)
		}
	}
}

// Those answers have the key, too, that are no answers for good.
func TestEchoBeforeTheAnswerIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, setup{opts: httponce.Options{EchoKey: true, Route: httponce.Route{AnswerWithin: time.Second, FailOpen: true}}, handle: func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute)
		}})
		for _, problem := range []string{"still-running", "in-progress"} {
			if g := svc.post("k"); g.problem != problem || g.header.Get("Idempotency-Key") != "k" {
				t.Errorf("%s: it got %+v", problem, g)
			}
		}
		svc.fail(everything)
		if g := svc.post("open"); g.status != http.StatusOK || g.header.Get("Idempotency-Key") != "open" {
			t.Errorf("where the store is down, it got %+v", g)
		}
		time.Sleep(time.Hour) // until the first handler has returned
	})
}

// zipped compresses what its clients accept compressed.
func zipped(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		h.ServeHTTP(&zipWriter{w, z}, r)
		_ = z.Close()
	})
}

type zipWriter struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w *zipWriter) Write(p []byte) (int, error) { return w.z.Write(p) }

func unzipped(t *testing.T, res *http.Response) string {
	t.Helper()
	if res.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		res.Body = io.NopCloser(z)
	}
	return bodyOf(t, res)
}

// A compressing middleware belongs around this one: then each client gets the encoding that it asked for.
// Inside this one, the encoding of the first client is what all get.
func TestACompressingMiddlewareBelongsAround(t *testing.T) {
	hello := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	around := zipped(protected(t, nil, hello))
	inside := protected(t, nil, zipped(http.HandlerFunc(hello)).ServeHTTP)
	for _, tc := range []struct {
		name     string
		h        http.Handler
		accept   []string
		encoding []string
	}{
		{"around", around, []string{"gzip", "", "gzip"}, []string{"gzip", "", "gzip"}},
		{"inside", inside, []string{"gzip", "", "gzip"}, []string{"gzip", "gzip", "gzip"}},
	} {
		for i, accept := range tc.accept {
			res := again(tc.h, "k", "Accept-Encoding", accept)
			if got := res.Header.Get("Content-Encoding"); got != tc.encoding[i] {
				t.Errorf("%s, answer %d: Content-Encoding %q, want %q", tc.name, i, got, tc.encoding[i])
			}
			if got := unzipped(t, res); got != "hello" {
				t.Errorf("%s, answer %d: %q", tc.name, i, got)
			}
			if got := res.Header.Values("Vary"); !reflect.DeepEqual(got, []string{"Accept-Encoding"}) {
				t.Errorf("%s, answer %d: Vary %q", tc.name, i, got)
			}
		}
	}
	// Elided, it has no encoding: a client would decode a missing body.
	small := protected(t, &httponce.Options{Route: httponce.Route{MaxAnswer: 1}}, zipped(http.HandlerFunc(hello)).ServeHTTP)
	again(small, "k", "Accept-Encoding", "gzip")
	if res := again(small, "k", "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "" || res.Header.Get("Idempotent-Replayed") != "elided" {
		t.Errorf("elided: %v", res.Header)
	}
}

// A header that describes a body is not sent on an answer without one: a client would wait for the body.
func TestWithoutItsBodyAnAnswerSaysNothingOfOne(t *testing.T) {
	ofBody := []string{"Content-Length", "Content-Encoding", "Content-Range", "Content-Digest", "Repr-Digest", "Digest", "Content-MD5", "Trailer", http.TrailerPrefix + "X-Sum"}
	svc := newService(t, setup{opts: httponce.Options{Route: httponce.Route{MaxAnswer: 1}}, handle: func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range ofBody {
			w.Header().Set(name, "4")
		}
		w.Header().Set("X-A", "a")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}})
	svc.post("k")
	g, status := svc.post("k"), svc.ask("k")
	if g.status != 201 || g.mark != "elided" || g.header.Get("X-A") != "a" || !strings.Contains(status.body, `"missing":"elided"`) || !strings.Contains(status.body, "X-A") {
		t.Errorf("it got %+v, and of its status %s", g, status.body)
	}
	for _, name := range ofBody {
		if g.header.Get(name) != "" || strings.Contains(status.body, http.CanonicalHeaderKey(name)) {
			t.Errorf("%s gets headers for a missing body: %v, and the status %s", name, g.header, status.body)
		}
	}
}

// A change to a header after it was written is neither sent nor saved, even in the slice of its values.
func TestAHeaderIsAsItWasWhenItWasWritten(t *testing.T) {
	h := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-A"], w.Header()["X-B"] = []string{"1", "2"}, []string{"3"}
		w.WriteHeader(http.StatusCreated)
		w.Header()["X-A"][0], w.Header()["X-B"][0] = "late", "late"
	})
	for range 2 {
		if res := again(h, "k"); !reflect.DeepEqual(res.Header["X-A"], []string{"1", "2"}) || !reflect.DeepEqual(res.Header["X-B"], []string{"3"}) {
			t.Errorf("it got %v", res.Header)
		}
	}
}
