package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// Headers set by an outer middleware reach the client after a status below 200 too, and are fresh on every repetition:
// [net/http/httputil.ReverseProxy] clears the header after each such status.
func TestProxyKeepsOuterHeadersBehindEarlyHints(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
	for name, tc := range map[string]struct {
		hints string
		route httponce.Route
	}{
		"none":              {},
		"one":               {hints: hints},
		"two":               {hints: hints + hints},
		"in a goroutine":    {hints: hints, route: httponce.Route{AnswerWithin: time.Minute}},
		"and a long answer": {hints: hints, route: httponce.Route{MaxAnswer: 2}},
	} {
		u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
			return tc.hints + "HTTP/1.1 201 Created\r\nVary: Accept\r\nX-Inner: i\r\nContent-Length: 4\r\n\r\ndone", false
		})
		protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: tc.route})
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := proxy.New(u.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		served := protect(proxy)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Outer", r.Header.Get("X-Outer"))
			w.Header().Set("Vary", "Origin")
			served.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		for _, id := range []string{"first", "second", "without a key"} {
			key := "Idempotency-Key: k\r\n"
			if id == "without a key" {
				key = ""
			}
			final := finalHead(t, srv, key+"X-Outer: "+id+"\r\n")
			for _, line := range []string{"HTTP/1.1 201 Created", "X-Outer: " + id, "Vary: Origin", "Vary: Accept", "X-Inner: i"} {
				if strings.Count(final, line+"\r\n") != 1 {
					t.Errorf("%s, %s: %q is not present exactly once:\n%s", name, id, line, final)
				}
			}
			if strings.Contains(final, "Link:") {
				t.Errorf("%s, %s: a hint's header is in the answer:\n%s", name, id, final)
			}
		}
	}
}

// finalHead sends a request over a new connection, and returns the head of its final answer.
func finalHead(t *testing.T, srv *httptest.Server, fields string) string {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 0\r\n"+fields+"\r\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	heads := strings.Split(string(text), "\r\n\r\n")
	for _, head := range heads {
		if !strings.HasPrefix(head, "HTTP/1.1 1") {
			return head + "\r\n"
		}
	}
	t.Fatalf("no answer: %q", text)
	return ""
}
