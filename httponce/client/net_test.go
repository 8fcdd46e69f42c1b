package client_test

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

	"github.com/everonce/everonce/httponce/client"
)

// pipes is a network in memory, for tests inside a synctest bubble.
type pipes struct {
	conns chan net.Conn
	gone  chan struct{}
	close func()
	dials atomic.Int32
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), gone: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.gone) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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

// serve serves a handler on a network in memory, and returns the client's end of it. Everything ends with the test.
func serve(t *testing.T, h http.HandlerFunc) (*http.Transport, *pipes) {
	t.Helper()
	p := newPipes()
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

// peer answers one request on a connection, or does not.
type peer func(c net.Conn)

// wire is a server with one peer per connection, in order; the last peer serves all further ones. It counts what came
// over the wire.
type wire struct {
	url   string
	mu    sync.Mutex
	seen  []*http.Request // what the peers have read
	conns int
}

func onTheWire(t *testing.T, peers ...peer) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + l.Addr().String() + "/pay"}
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
				peer(&conn{Conn: c, wire: w})
			})
		}
	})
	return w
}

// conn lets a peer tell the wire what it read.
type conn struct {
	net.Conn
	wire *wire
	r    *bufio.Reader
}

// reads reads a request with its body, or returns nil if there is no request.
func reads(c net.Conn) *http.Request {
	conn := c.(*conn)
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
func (w *wire) requests(t *testing.T) (bodies, keys []string) {
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

const created = "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncharged"

// answers reads one request and writes text; then the connection ends.
func answers(text string) peer {
	return func(c net.Conn) {
		if reads(c) != nil {
			_, _ = io.WriteString(c, text)
		}
	}
}

// resets reads one request, writes text, and resets the connection.
func resets(text string) peer {
	return func(c net.Conn) {
		answers(text)(c)
		_ = c.(*conn).Conn.(*net.TCPConn).SetLinger(0)
	}
}

// over returns a client with quick pauses, through base.
func over(t *testing.T, base http.RoundTripper, opts *client.Options) *http.Client {
	t.Helper()
	var o client.Options
	if opts != nil {
		o = *opts
	}
	if o.Backoff == 0 {
		o.Backoff, o.MaxBackoff = 1, 1
	}
	tr, err := client.NewTransport(base, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// base returns a base of the test's own.
func base() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
}

// post posts a charge.
func post(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	return postWith(t.Context(), c, url)
}

func postWith(ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("charge"))
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// wantAnswer checks an answer's status and body.
func wantAnswer(t *testing.T, resp *http.Response, err error, status int, body string) {
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

// wantError checks that a request ended with a RetryError after this many attempts.
func wantError(t *testing.T, resp *http.Response, err error, attempts int) *client.RetryError {
	t.Helper()
	if err == nil {
		resp.Body.Close()
		t.Fatalf("want an error, got %s", resp.Status)
	}
	var retry *client.RetryError
	if !errors.As(err, &retry) {
		t.Fatalf("want a RetryError, got %v", err)
	}
	if retry.Attempts != attempts {
		t.Errorf("%d attempts were made, want %d (%v)", retry.Attempts, attempts, err)
	}
	return retry
}
