package proxy_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// wireUpstream is a service on a bare listener: it sees the bytes of requests, and decides on the connection.
type wireUpstream struct {
	ln  net.Listener
	url *url.URL

	mu       sync.Mutex
	requests []wireRequest
	conns    []net.Conn
}

// wireRequest is a request in the form that it had on the wire.
type wireRequest struct {
	head string
	body string
}

// wireAnswer is what an upstream does about the n-th request that it got, from 1: what it writes, and whether it
// closes the connection then.
type wireAnswer func(n int, r wireRequest) (text string, last bool)

const wireCreated = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone"

func newWireUpstream(t *testing.T, answer wireAnswer) *wireUpstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &wireUpstream{ln: ln, url: &url.URL{Scheme: "http", Host: ln.Addr().String()}}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns = append(u.conns, c)
			u.mu.Unlock()
			conns.Go(func() { u.serve(c, answer) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		u.mu.Lock()
		for _, c := range u.conns {
			c.Close()
		}
		u.mu.Unlock()
		conns.Wait()
	})
	return u
}

func (u *wireUpstream) serve(c net.Conn, answer wireAnswer) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := readWireRequest(br)
		if err != nil {
			return
		}
		u.mu.Lock()
		u.requests = append(u.requests, r)
		n := len(u.requests)
		u.mu.Unlock()
		text, last := answer(n, r)
		if _, err := io.WriteString(c, text); err != nil || last {
			return
		}
	}
}

func readWireRequest(br *bufio.Reader) (r wireRequest, err error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return r, err
		}
		head.WriteString(line)
		if line == "\r\n" {
			break
		}
	}
	r.head = head.String()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(r.head)))
	if err != nil {
		return r, err
	}
	body := io.LimitReader(br, req.ContentLength)
	if req.ContentLength < 0 {
		body = httputil.NewChunkedReader(br)
	}
	b, err := io.ReadAll(body)
	r.body = string(b)
	if err == nil && req.ContentLength < 0 {
		_, err = br.Discard(len("\r\n")) // behind the last chunk, which has no trailers
	}
	return r, err
}

// seen returns the requests so far.
func (u *wireUpstream) seen() []wireRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]wireRequest(nil), u.requests...)
}

// newProxy returns a server with a proxy inside a middleware.
func newProxy(t *testing.T, upstream *url.URL, opts *httponce.Options, popts *proxy.Options) *httptest.Server {
	t.Helper()
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	quietly := proxy.Options{}
	if popts != nil {
		quietly = *popts
	}
	if quietly.Log == nil {
		quietly.Log = slog.New(slog.DiscardHandler)
	}
	proxy, err := proxy.New(upstream, &quietly)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(protect(proxy))
	t.Cleanup(srv.Close)
	return srv
}

// newBareProxy returns a server with what net/http offers alone.
func newBareProxy(t *testing.T, upstream *url.URL, transport *http.Transport) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: transport,
		ErrorLog:  quiet,
	})
	t.Cleanup(srv.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return srv
}

// post sends a request to a server; a key that is empty is not sent.
func post(t *testing.T, srv *httptest.Server, path, key, body string, headers ...string) (status int, header http.Header, got string) {
	t.Helper()
	return do(t, srv, http.MethodPost, path, key, body, headers...)
}

func do(t *testing.T, srv *httptest.Server, method, path, key, body string, headers ...string) (status int, header http.Header, got string) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, content)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.GetBody = nil
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	return res.StatusCode, res.Header, bodyOf(t, res)
}
