package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce/httponce"
)

// net/http accepts targets that are not paths. They would be passed on unchanged: to another path than the one that was
// routed, past the key that it requires, and outside of the upstream's own path.
func TestProxyPassesOnNothingButAPath(t *testing.T) {
	for _, below := range []string{"", "/api"} {
		calls := 0
		u := newUpstream(t, func(http.ResponseWriter, *http.Request) { calls++ })
		u.Path = below
		srv := newProxy(t, u, &httponce.Options{Routes: map[string]httponce.Route{"POST /charges": {Required: true}}}, nil)
		for _, target := range []string{"x:charges", "x:http://h/charges", "http:charges", "x:%2Fcharges", "*"} {
			for _, key := range []string{"", "Idempotency-Key: " + url.QueryEscape(target) + "\r\n"} {
				c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%sContent-Length: 2\r\n\r\n{}", target, key)
				answer, err := io.ReadAll(c)
				c.Close()
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || calls != 0 {
					t.Errorf("%s %q below %q: %q, %v, %d calls", target, key, below, answer, err, calls)
				}
			}
		}
		if status, _, body := post(t, srv, "/charges", "k", "{}"); status != http.StatusOK || calls != 1 {
			t.Errorf("below %q: %d %s, %d calls", below, status, body, calls)
		}
	}
}

// Over HTTP/2 a query may hold a blank. In a line of HTTP/1.1 that would be the end of the target, and what follows it
// the version.
func TestProxyPassesOnNoBlankInAQuery(t *testing.T) {
	up := httptest.NewUnstartedServer(http.NotFoundHandler())
	asked := &tapped{Listener: up.Listener} // before net/http refuses it
	up.Listener = asked
	up.Start()
	t.Cleanup(up.Close)
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(newProxy(t, u, nil, nil).Config.Handler)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for query, passes := range map[string]bool{"a HTTP/1.0": false, " ": false, "a b": false, "a+b%20c#<\"é": true} {
		for _, key := range []string{"", "k"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/a%20b", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if r.URL.RawQuery = query; key != "" {
				r.Header.Set("Idempotency-Key", key+url.QueryEscape(query))
			}
			res, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			status, line := http.StatusBadRequest, ""
			if passes {
				status, line = http.StatusNotFound, "POST /a%20b?"+query+" HTTP/1.1"
			}
			if got := asked.firstLine(); res.ProtoMajor != 2 || res.StatusCode != status || got != line {
				t.Errorf("%q, key %q: %s %d, and the service is asked %q", query, key, res.Proto, res.StatusCode, got)
			}
		}
	}
}

// tapped is a listener that keeps what its connections have read.
type tapped struct {
	net.Listener
	mu   sync.Mutex
	text []byte
}

func (h *tapped) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	return tappedConn{c, h}, err
}

// firstLine returns the first line since it was last called.
func (h *tapped) firstLine() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	line, _, _ := strings.Cut(string(h.text), "\r\n")
	h.text = nil
	return line
}

type tappedConn struct {
	net.Conn
	tap *tapped
}

func (c tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.text = append(c.tap.text, p[:n]...)
	return n, err
}
