package proxy_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/proxy"
)

// socketPath returns a path that is short enough for a Unix domain socket, which a test's own folder may not be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // its folder has the name of the test in its path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "a@1.sock")
}

// serveAt serves at a Unix domain socket.
func serveAt(t *testing.T, path string, h http.Handler) *httptest.Server {
	t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// A service at a Unix domain socket behaves like any other: while the socket is missing, nothing is sent, and the key
// is free.
func TestProxyToAUnixSocket(t *testing.T) {
	path, calls := socketPath(t), 0
	srv := newProxy(t, &url.URL{Scheme: "unix", Path: path}, nil, &proxy.Options{UpstreamHost: true})
	if status, _, body := post(t, srv, "/pay?x=1", "k", "amount=1"); status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") {
		t.Fatalf("%d %s, want 502 upstream-unreachable", status, body)
	}
	var got *http.Request
	serveAt(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		got = r
		w.WriteHeader(http.StatusCreated)
	}))
	for range 2 {
		if status, _, _ := post(t, srv, "/pay?x=1", "k", "amount=1"); status != http.StatusCreated {
			t.Fatalf("%d, want 201", status)
		}
	}
	if calls != 1 || got.Host != "localhost" || got.RequestURI != "/pay?x=1" {
		t.Errorf("%d calls, the last of %s at %s; want one, of /pay?x=1 at localhost", calls, got.RequestURI, got.Host)
	}
}

// A path that is no whole one to a socket is refused, and is not taken for something else.
func TestProxyRefusesWhatIsNoSocket(t *testing.T) {
	for _, text := range []string{"unix:", "unix:app.sock", "unix://run/app.sock", "unix:///run/app.sock?x", "unix:/run/app.sock#x", "unix:/run/%00", "unix:/" + strings.Repeat("x", 103)} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proxy.New(u, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", text, err)
		}
	}
	for _, text := range []string{"unix:/run/app.sock", "unix:///run/app@1.sock", "unix:/" + strings.Repeat("x", 102)} {
		u, err := url.Parse(text)
		if err == nil {
			_, err = proxy.New(u, nil)
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A proxy in front at a Unix domain socket has no address. If it is trusted, its headers about the client are passed on
// unchanged, and otherwise not at all.
func TestProxyForwardedAtAUnixSocket(t *testing.T) {
	var got http.Header
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	for trusted, want := range map[bool]string{true: "192.0.2.7, 192.0.2.8", false: ""} {
		h, err := proxy.New(u, &proxy.Options{TrustForwarded: trusted})
		if err != nil {
			t.Fatal(err)
		}
		path := socketPath(t)
		serveAt(t, path, h)
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}, DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop.test/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Forwarded-For"] = []string{"192.0.2.7", "192.0.2.8"}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got.Get("X-Forwarded-For") != want {
			t.Errorf("trusted: %v: the upstream got %q, want %q", trusted, got.Get("X-Forwarded-For"), want)
		}
	}
}
