package proxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// socketIn returns a path that is short enough for a Unix domain socket; the path of a test's own folder may not be.
func socketIn(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // its folder has the name of the test in its path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, name)
}

// payAt sends a request with a key to a proxy at a Unix domain socket.
func payAt(t *testing.T, file string) (status int, replayed bool) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", file)
	}}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop.test/pay", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, res.Header.Get("Idempotent-Replayed") != ""
}

// A proxy, its clients and its service may use Unix domain sockets, so that no other user of the machine can bypass the
// proxy. Its socket is gone when it has ended.
func TestProxyAtUnixSockets(t *testing.T) {
	var service counting
	behind, at := socketIn(t, "service.sock"), socketIn(t, "proxy.sock")
	ln, err := net.Listen("unix", behind)
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewUnstartedServer(&service)
	up.Listener.Close()
	up.Listener = ln
	up.Start()
	t.Cleanup(up.Close)
	p := startBefore(t, "unix:"+behind, "--listen=unix:"+at)
	for i := range 3 {
		if status, replayed := payAt(t, at); status != http.StatusCreated || replayed != (i > 0) {
			t.Errorf("request %d: %d, replayed: %v", i, status, replayed)
		}
	}
	if n := service.count(); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}
	p.stop()
	<-p.ended
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// A socket that a process has left behind, because it was killed, is replaced. One that somebody listens at is not, nor
// is another file.
func TestProxyReplacesASocketThatWasLeft(t *testing.T) {
	at := socketIn(t, "proxy.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	c := configOf(t, "--listen=unix:"+at, "--admin=none", "--store=memory:", "--upstream=http://127.0.0.1:1")
	if s, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); !errors.Is(err, syscall.EADDRINUSE) || s != nil {
		t.Errorf("beside one who listens: %v", err)
	}
	if c, err := net.Dial("unix", at); err != nil {
		t.Errorf("who listens is cut off: %v", err)
	} else {
		c.Close()
	}
	left.Close()
	startBefore(t, "http://127.0.0.1:1", "--listen=unix:"+at)
	if status, _ := payAt(t, at); status != http.StatusBadGateway {
		t.Errorf("%d from the proxy there, want 502 of its upstream", status)
	}

	other := socketIn(t, "proxy.sock")
	if err := os.WriteFile(other, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Listen = "unix:" + other
	if _, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("where another file is: %v", err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "a file" {
		t.Errorf("the file is %q now: %v", text, err)
	}
}

// Of proxies that begin together at a socket that was left, one listens, and the end of those that do not takes it
// nothing.
func TestOneProxyReplacesASocketThatWasLeft(t *testing.T) {
	at := socketIn(t, "proxy.sock")
	for range 50 {
		left, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		left.Close()
		var starts sync.WaitGroup
		listeners := make(chan net.Listener, 4)
		for range cap(listeners) {
			starts.Go(func() {
				switch ln, err := listenAt(t.Context(), "unix:"+at); {
				case err == nil:
					listeners <- ln
				case !errors.Is(err, syscall.EADDRINUSE):
					t.Error(err)
				}
			})
		}
		starts.Wait()
		close(listeners)
		if n := len(listeners); n != 1 {
			t.Fatalf("%d listen, want one", n)
		}
		if c, err := net.Dial("unix", at); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		(<-listeners).Close()
	}
}

// The lock is held for as long as a proxy listens, whatever becomes of the socket, and no longer.
func TestTheLockOfASocketIsHeldWhileAProxyListens(t *testing.T) {
	at := socketIn(t, "proxy.sock")
	first, err := listenAt(t.Context(), "unix:"+at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if ln, err := listenAt(t.Context(), "unix:"+at); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("beside the first: %v, %v", ln, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second, err := listenAt(t.Context(), "unix:"+at)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}
