package httponce_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// counted returns a handler behind the middleware that counts its calls.
func counted(t testing.TB, opts *httponce.Options) (h http.Handler, calls *int) {
	t.Helper()
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	calls = new(int)
	return protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*calls++
		fmt.Fprintf(w, "call %d", *calls)
	})), calls
}

// A request is checked in one order, and the first problem is the answer: a request without a key need not say who
// sends it, and no body is read before its sender is known.
func TestWhatIsWrongFirstIsAnswered(t *testing.T) {
	nobody := func(*http.Request) (string, error) { return "", nil }
	var told []string
	sent := func(principal httponce.Principal, key, body string) *http.Response {
		protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), principal, &httponce.Options{
			Route: httponce.Route{Required: true, MaxBody: 2}, Observe: func(_ context.Context, s httponce.Served) { told = append(told, s.Problem) },
		})
		if err != nil {
			t.Fatal(err)
		}
		header := []string{"Idempotency-Key", key}
		if key == "" {
			header = nil
		}
		return send(protect(http.NotFoundHandler()), "POST", "/payments", body, header...)
	}
	for _, c := range []struct {
		principal httponce.Principal
		key, body string
		want      string
	}{
		{nobody, "", "{ }", "missing-key"},
		{nobody, "a,b", "{ }", "invalid-key"},
		{nobody, "k", "{ }", "no-principal"},
		{httponce.Unscoped(), "k", "{ }", "body-too-large"},
	} {
		told = nil
		if body := bodyOf(t, sent(c.principal, c.key, c.body)); !strings.Contains(body, "/"+c.want) || !slices.Equal(told, []string{c.want}) {
			t.Errorf("it is answered %s, and Observe got %v, want %s once", body, told, c.want)
		}
	}
}

// All spellings of a key are one key.
func TestSpellingsOfAKey(t *testing.T) {
	h, calls := counted(t, nil)
	for i, spelled := range []string{"k1", `"k1"`} {
		res := send(h, "POST", "/payments", "{}", "Idempotency-Key", spelled)
		if body := bodyOf(t, res); body != "call 1" || i > 0 && res.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %q, %v", spelled, body, res.Header)
		}
	}
	if res := send(h, "POST", "/payments", "{}", "Idempotency-Key", "K1"); bodyOf(t, res) != "call 2" {
		t.Error("letter case is ignored")
	}
	if *calls != 2 {
		t.Errorf("the handler was called %d times, want 2", *calls)
	}
}

// A key that cannot be is answered 400, with the reason; nothing of it is repeated, and the handler is not called.
func TestInvalidKeyIsAProblem(t *testing.T) {
	h, calls := counted(t, &httponce.Options{KeyHeader: "X-Request-Key", EchoKey: true})
	for value, want := range map[string]string{"": "X-Request-Key: it is empty.", "secret,secret": "comma"} {
		res := send(h, "POST", "/payments", "{}", "X-Request-Key", value)
		body := bodyOf(t, res)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "invalid-key") || !strings.Contains(body, want) ||
			strings.Contains(body, "secret") || res.Header.Get("X-Request-Key") != "" {
			t.Errorf("%q: %d %s %v", value, res.StatusCode, body, res.Header)
		}
	}
	if res := send(h, "POST", "/", "", "X-Request-Key", "a", "X-Request-Key", "a"); res.StatusCode != http.StatusBadRequest || !strings.Contains(bodyOf(t, res), "more than once") {
		t.Errorf("twice: %d", res.StatusCode)
	}
	if *calls != 0 {
		t.Errorf("the handler was called %d times", *calls)
	}
}

// A service may demand more of a key than HTTP does. The answer says why a key was rejected, but never repeats it. On a
// route without such demands it is a key as any other.
func TestCheckKey(t *testing.T) {
	var asked []string
	check := func(key string) error {
		asked = append(asked, key)
		switch {
		case len(key) == 8:
			return nil
		case len(key) == 1:
			return errors.New("")
		case len(key) == 9:
			return errors.New("not " + key)
		case len(key) > 8:
			return fmt.Errorf("a key has 8 letters, and %q has %d", key, len(key))
		}
		return errors.New("a key has 8 letters.")
	}
	svc := newService(t, setup{
		opts:   httponce.Options{EchoKey: true, Route: httponce.Route{CheckKey: check}, Routes: map[string]httponce.Route{"/other": {}}},
		handle: answers(201, "paid"),
	})
	for spelled, detail := range map[string]string{
		"pqr":             "Idempotency-Key: a key has 8 letters.",
		"p":               "Idempotency-Key: this service does not accept it.",
		`"sec\"ret12"`:    "Idempotency-Key: this service does not accept it.",
		"secret-secret":   "Idempotency-Key: this service does not accept it.",
		`"sec\"secret"`:   "Idempotency-Key: this service does not accept it.",
		`"a, b, c, d, e"`: "Idempotency-Key: this service does not accept it.",
	} {
		g := svc.post(spelled)
		if g.status != http.StatusBadRequest || g.problem != "invalid-key" || !strings.Contains(g.body, detail) || strings.Contains(g.body, "sec") || g.header.Get("Idempotency-Key") != "" {
			t.Errorf("%s: it got %+v", spelled, g)
		}
		if last := svc.last(); last.Problem != "invalid-key" || last.KeyHash != "" || strings.Contains(svc.logs.String(), "sec") {
			t.Errorf("%s: Observe got %+v, logged %q", spelled, last, svc.logs.String())
		}
	}
	if svc.ran() != 0 {
		t.Errorf("the handler was called %d times", svc.ran())
	}
	asked = nil
	if g := svc.post(`"12345678"`); g.status != http.StatusCreated || len(asked) != 1 || asked[0] != "12345678" {
		t.Errorf("a good key: %+v; asked was %q", g, asked)
	}
	if res := send(svc, "POST", "/other", "{}", "Idempotency-Key", "short"); res.StatusCode != http.StatusCreated || len(asked) != 1 {
		t.Errorf("of another route: %d; asked was %q", res.StatusCode, asked)
	}
	for _, key := range []string{"", "bro,ken!"} {
		if g := svc.post(key); g.problem != "invalid-key" || len(asked) != 1 {
			t.Errorf("%q, which is no key: %+v; asked was %q", key, g, asked)
		}
	}
}

// The header is the configured one, and no other.
func TestConfiguredHeader(t *testing.T) {
	h, calls := counted(t, &httponce.Options{KeyHeader: "x-request-KEY", EchoKey: true})
	for range 2 {
		res := send(h, "POST", "/payments", "{}", "X-Request-Key", `"k1";a`)
		if bodyOf(t, res) != "call 1" || res.Header.Get("X-Request-Key") != `"k1";a` {
			t.Errorf("%v", res.Header)
		}
	}
	for range 2 {
		send(h, "POST", "/payments", "{}", "Idempotency-Key", "k1")
	}
	if *calls != 3 {
		t.Errorf("the handler was called %d times, want 3: the other header carries no key", *calls)
	}
}

// Methods that are not named pass untouched, with a key or without, and so do requests without one; where a
// key is required those are refused.
func TestWhoNeedsAKey(t *testing.T) {
	for _, c := range []struct {
		name, method string
		route        httponce.Route
		key          bool
		calls        int // of two requests
		status       int
	}{
		{"POST", "POST", httponce.Route{}, true, 1, 200},
		{"PATCH", "PATCH", httponce.Route{}, true, 1, 200},
		{"PUT", "PUT", httponce.Route{}, true, 2, 200},
		{"GET", "GET", httponce.Route{Required: true}, true, 2, 200},
		{"no key", "POST", httponce.Route{}, false, 2, 200},
		{"no key, required", "POST", httponce.Route{Required: true}, false, 0, 400},
		{"other methods", "PUT", httponce.Route{Methods: []string{"PUT"}}, true, 1, 200},
		{"not among them", "POST", httponce.Route{Methods: []string{"PUT"}, Required: true}, true, 2, 200},
		{"exempt", "POST", httponce.Route{Methods: []string{}, Required: true}, true, 2, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, calls := counted(t, &httponce.Options{Route: c.route})
			for range 2 {
				var header []string
				if c.key {
					header = []string{"Idempotency-Key", "k1"}
				}
				if res := send(h, c.method, "/payments", "", header...); res.StatusCode != c.status {
					t.Errorf("answered %d, want %d", res.StatusCode, c.status)
				}
			}
			if *calls != c.calls {
				t.Errorf("called %d times, want %d", *calls, c.calls)
			}
		})
	}
}

// No key can write a header of the answer: a key that the server lets through is rejected, or comes back in one line
// unchanged.
func TestKeysCanNotInjectHeaders(t *testing.T) {
	h, _ := counted(t, &httponce.Options{EchoKey: true})
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, value := range []string{
		"k\rX-Evil: 1", "k\nX-Evil: 1", "k\r\n X-Evil: 1", "\"k\r\n\tX-Evil: 1\"", "k\x00X-Evil: 1", `"k\r\nX-Evil: 1"`,
		"k\x0bX-Evil:1", "k\xe2\x80\xa8X-Evil:1", "k%0d%0aX-Evil:1", `"k%0d%0aX-Evil: 1"`, "\"k\";a=\"\r\nX-Evil: 1\"", "k\u0085X-Evil:1",
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /payments HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\n\r\n", value)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if _, ok := res.Header["X-Evil"]; ok {
			t.Errorf("%q wrote a header: %v", value, res.Header)
		}
		echo := res.Header["Idempotency-Key"]
		if res.StatusCode == http.StatusOK && len(echo) != 1 || res.StatusCode != http.StatusOK && len(echo) != 0 {
			t.Errorf("%q: %d, echoed is %q", value, res.StatusCode, echo)
		}
		conn.Close()
	}
}

// The method is a part of a key's scope: one key with two methods is two operations, and no mismatch.
func TestMethodsAreScopes(t *testing.T) {
	h, calls := counted(t, nil)
	for i, method := range []string{http.MethodPost, http.MethodPatch} {
		for _, mark := range []string{"", "true"} {
			res := send(h, method, "/orders/1", "{}", "Idempotency-Key", "k")
			if body := bodyOf(t, res); body != fmt.Sprintf("call %d", i+1) || res.Header.Get("Idempotent-Replayed") != mark || *calls != i+1 {
				t.Errorf("%s got %d %q %v", method, res.StatusCode, body, res.Header)
			}
		}
	}
}

// An answer is kept for the lifetime of its route, and not for the receiver's.
func TestLifetimeOfARoute(t *testing.T) {
	route := httponce.Route{Lifetime: everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}}
	for name, s := range map[string]setup{"guarded": {handle: answers(201, "paid")}, "in a transaction": {handleTx: charges(201, "paid", nil)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.opts.Route = route
				svc := newService(t, s)
				for _, mark := range []string{"", "true", "expired", ""} {
					if g := svc.post("k"); g.status != 201 || g.mark != mark {
						t.Errorf("it got %+v, want it marked %q", g, mark)
					}
					time.Sleep(50 * time.Minute)
				}
			})
		})
	}
}
