package httponce_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce/httponce"
)

// transportPipes is a network in memory, for tests inside a synctest bubble.
type transportPipes struct {
	conns chan net.Conn
	gone  chan struct{}
	close func()
	dials atomic.Int32
}

func newTransportPipes() *transportPipes {
	p := &transportPipes{conns: make(chan net.Conn), gone: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.gone) })
	return p
}

func (p *transportPipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *transportPipes) Close() error   { p.close(); return nil }
func (p *transportPipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *transportPipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.dials.Add(1)
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.gone:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// transportServe serves a handler on a network in memory, and returns the client's end of it. Everything ends with the test.
func transportServe(t *testing.T, h http.HandlerFunc) (*http.Transport, *transportPipes) {
	t.Helper()
	p := newTransportPipes()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(p)
	}()
	base := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		_ = srv.Shutdown(context.Background()) // waits for the handlers
		p.close()
		<-done
	})
	return base, p
}

// transportPeer answers one request on a connection, or does not.
type transportPeer func(c net.Conn)

// transportWire is a server whose connections do as they are told: the first one as the first peer, and so on; the last
// peer does for all that follow. It counts what came over the wire.
type transportWire struct {
	url   string
	mu    sync.Mutex
	seen  []*http.Request // what the peers have read
	conns int
}

func transportOnTheWire(t *testing.T, peers ...transportPeer) *transportWire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &transportWire{url: "http://" + l.Addr().String() + "/pay"}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			peer := peers[min(w.conns, len(peers)-1)]
			w.conns++
			w.mu.Unlock()
			all.Go(func() {
				defer c.Close()
				peer(&transportConn{Conn: c, wire: w})
			})
		}
	})
	return w
}

// transportConn lets a peer tell the wire what it read.
type transportConn struct {
	net.Conn
	wire *transportWire
	r    *bufio.Reader
}

// transportReads reads a request with its body, or returns nil where there is none.
func transportReads(c net.Conn) *http.Request {
	conn := c.(*transportConn)
	if conn.r == nil {
		conn.r = bufio.NewReader(c)
	}
	r, err := http.ReadRequest(conn.r)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	conn.wire.mu.Lock()
	defer conn.wire.mu.Unlock()
	conn.wire.seen = append(conn.wire.seen, r)
	return r
}

// requests returns what came, body and key.
func (w *transportWire) requests(t *testing.T) (bodies, keys []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.seen {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		bodies, keys = append(bodies, string(b)), append(keys, strings.Join(r.Header.Values("Idempotency-Key"), "|"))
	}
	return bodies, keys
}

const transportCreated = "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncharged"

// transportAnswers reads one request and writes text; then the connection ends.
func transportAnswers(text string) transportPeer {
	return func(c net.Conn) {
		if transportReads(c) != nil {
			_, _ = io.WriteString(c, text)
		}
	}
}

// transportResets reads one request, writes text, and resets the connection.
func transportResets(text string) transportPeer {
	return func(c net.Conn) {
		transportAnswers(text)(c)
		_ = c.(*transportConn).Conn.(*net.TCPConn).SetLinger(0)
	}
}

// transportOver returns a client with quick pauses, through base.
func transportOver(t *testing.T, base http.RoundTripper, opts *httponce.TransportOptions) *http.Client {
	t.Helper()
	var o httponce.TransportOptions
	if opts != nil {
		o = *opts
	}
	if o.Backoff == 0 {
		o.Backoff, o.MaxBackoff = 1, 1
	}
	tr, err := httponce.NewTransport(base, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// transportBase returns a base of the test's own.
func transportBase() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
}

// transportPost posts a charge.
func transportPost(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	return transportPostWith(t.Context(), c, url)
}

func transportPostWith(ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("charge"))
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// transportWantAnswer checks an answer's status and body.
func transportWantAnswer(t *testing.T, resp *http.Response, err error, status int, body string) {
	t.Helper()
	if err != nil {
		t.Fatalf("want %d %q, got the error %v", status, body, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode != status || string(got) != body || err != nil {
		t.Errorf("got %d %q, %v; want %d %q", resp.StatusCode, got, err, status, body)
	}
}

// transportWantError checks that a request ended with a RetryError after this many attempts.
func transportWantError(t *testing.T, resp *http.Response, err error, attempts int) *httponce.RetryError {
	t.Helper()
	if err == nil {
		resp.Body.Close()
		t.Fatalf("want an error, got %s", resp.Status)
	}
	var retry *httponce.RetryError
	if !errors.As(err, &retry) {
		t.Fatalf("want a RetryError, got %v", err)
	}
	if retry.Attempts != attempts {
		t.Errorf("%d attempts were made, want %d (%v)", retry.Attempts, attempts, err)
	}
	return retry
}
