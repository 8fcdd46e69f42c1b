package proxy_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce/proxy"
)

// An upstream that does not even refuse a connection is given up: nothing was sent to it.
func TestProxyConnectIsBounded(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	given, release := context.WithTimeout(t.Context(), 10*time.Second) // for what is to take 20 ms
	closed := make(chan struct{})
	context.AfterFunc(given, func() { syscall.Close(fd); close(closed) }) // the next attempt of the kernel's is refused then
	t.Cleanup(func() { release(); <-closed })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	const backlog = 0 // the kernel makes one connection, which is not accepted, and answers no further one
	if err := syscall.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + strconv.Itoa(name.(*syscall.SockaddrInet4).Port)
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	var logs bytes.Buffer
	srv := newProxy(t, &url.URL{Scheme: "http", Host: addr}, nil, &proxy.Options{ConnectTimeout: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if status, _, body := post(t, srv, "/", "k", "amount=1"); status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") {
		t.Errorf("%d %s, want 502 upstream-unreachable", status, body)
	}
	if !strings.Contains(logs.String(), "i/o timeout") {
		t.Errorf("it was not ConnectTimeout that ended the connecting: %s", logs.String())
	}
}

// A Unix domain socket that does not take one connection more refuses it at once: nothing was sent, and the key is
// free.
func TestProxyToABusyUnixSocket(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	path := socketPath(t)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", path) // it is not accepted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	srv := newProxy(t, &url.URL{Scheme: "unix", Path: path}, nil, nil)
	for range 2 {
		if status, _, body := post(t, srv, "/", "k", "amount=1"); status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") {
			t.Errorf("%d %s, want 502 upstream-unreachable", status, body)
		}
	}
}
