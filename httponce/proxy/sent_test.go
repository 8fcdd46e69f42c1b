package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"
)

// deafConn refuses every write after its first n, without a byte.
type deafConn struct {
	net.Conn
	mu   sync.Mutex
	left int
}

var errDeaf = errors.New("not connected")

func (c *deafConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		return 0, errDeaf
	}
	return c.Conn.Write(p)
}

// A kept connection that turns out to be dead before a byte was written to it: the request was not sent.
func TestProxyNothingWrittenToAKeptConnection(t *testing.T) {
	client, server := net.Pipe()
	go func() {
		buf := make([]byte, 4096)
		if _, err := server.Read(buf); err == nil {
			io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	dials := 0
	once := &onceTransport{base: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if dials++; dials > 1 {
			t.Error("a second connection was made")
		}
		return &countedConn{Conn: &deafConn{Conn: client, left: 1}}, nil
	}}}
	for i, want := range []bool{false, true} {
		r, err := http.NewRequestWithContext(withPassage(t.Context(), &passage{}), http.MethodPost, "http://service.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		sendOnce(r)
		res, err := once.RoundTrip(r)
		var unsent *notSentError
		if (err != nil) != want || errors.As(err, &unsent) != want {
			t.Fatalf("request %d: %v", i, err)
		}
		if res != nil {
			res.Body.Close()
		}
	}
}

// A connection is given up in one step: writes in progress or done prevent it; later ones fail.
func TestProxySeal(t *testing.T) {
	client, server := net.Pipe()
	t.Cleanup(func() { server.Close() })
	c := &countedConn{Conn: client}
	writes := make(chan error)
	go func() {
		_, err := c.Write([]byte("abc"))
		writes <- err
	}()
	one := make([]byte, 1)
	if _, err := server.Read(one); err != nil {
		t.Fatal(err)
	}
	if c.seal(c.count()) {
		t.Error("sealed in the middle of a write")
	}
	if _, err := io.ReadFull(server, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if err := <-writes; err != nil {
		t.Fatal(err)
	}
	if c.seal(written{}) {
		t.Error("sealed, as if nothing had been written")
	}
	if !c.seal(written{bytes: 3}) {
		t.Error("not sealed, though nothing was written since")
	}
	if _, err := c.Write([]byte("d")); !errors.Is(err, errSealed) {
		t.Errorf("a write after that: %v", err)
	}
}

// Below TLS, too, a connection knows what was written to it. One that speaks HTTP/2 carries many requests, and no
// single request may give it up.
func TestProxyOwnConnectionBelowTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for _, protocol := range []string{"http/1.1", "h2"} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		own := &countedConn{Conn: conn}
		c := tls.Client(own, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		if err := c.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if found := ownConn(c); (found == own) != (protocol == "http/1.1") {
			t.Errorf("%s: %v", protocol, found)
		}
		c.Close()
	}
}

// Over HTTP/2 nothing was written before a field was encoded; but who cancels leaves the writer behind, who may just
// begin.
func TestProxyNothingWrittenOverHTTP2(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
	s := sending{got: true}
	if !s.wroteNothing(r) {
		t.Error("something, though no field was encoded")
	}
	cancel()
	if s.wroteNothing(r) {
		t.Error("nothing, though the writer may go on")
	}
	s.wroteField("", nil)
	if s.wroteNothing(httptest.NewRequest(http.MethodPost, "/", http.NoBody)) {
		t.Error("nothing, though a field was encoded")
	}
}

// A write that broke off has written something.
func TestProxySealAfterABrokenWrite(t *testing.T) {
	client, server := net.Pipe()
	c := &countedConn{Conn: client}
	writes := make(chan error)
	go func() {
		_, err := c.Write([]byte("abc"))
		writes <- err
	}()
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if err := <-writes; err == nil || c.seal(written{}) {
		t.Errorf("sealed, as if nothing had been written (%v)", err)
	}
}

// Only these words of net/http's are a promise.
func TestProxyPromised(t *testing.T) {
	for text, want := range map[string]bool{
		"http2: Transport: cannot retry err [stream error: stream ID 3; REFUSED_STREAM; received from peer] after Request.Body was written; define Request.GetBody to avoid this error": true,
		"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] after Request.Body was written; define Request.GetBody to avoid this error":   true,
		"http2: Transport: cannot retry err [stream error: stream ID 3; PROTOCOL_ERROR; received from peer] after Request.Body was written; define Request.GetBody to avoid this error": false,
		"stream error: stream ID 3; CANCEL; received from peer":                                                             false,
		"http2: server sent GOAWAY and closed the connection; LastStreamID=3, ErrCode=NO_ERROR, debug=\"; REFUSED_STREAM\"": false,
		"EOF": false,
	} {
		if got := notProcessed(errors.New(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A request that has passed is sent once, though its body could be had again, as of one that somebody in between has
// made.
func TestProxySendsNoBodyTwice(t *testing.T) {
	for name, body := range map[string]io.Reader{"a body": strings.NewReader("{}"), "an empty one": strings.NewReader(""), "none": nil} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service.test/", body)
		if err != nil {
			t.Fatal(err)
		}
		if sendOnce(r); r.GetBody != nil || r.Body == nil || r.Body == http.NoBody {
			t.Errorf("%s: net/http may send it again", name)
		}
	}
}

// An answer that begins before its request was written is not its answer, and the connection is closed. One that begins
// after the first write is the request's, even if more is to be written.
func TestProxyAnswerBeforeItsRequest(t *testing.T) {
	for name, asked := range map[string]bool{"before": false, "behind": true} {
		client, server := net.Pipe()
		t.Cleanup(func() { server.Close() })
		c := &countedConn{Conn: client}
		s := sending{conn: c, before: c.count()}
		if asked {
			go io.ReadFull(server, make([]byte, 3))
			if _, err := c.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
		}
		go io.WriteString(server, "HTTP")
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		s.firstByte()
		client.SetWriteDeadline(time.Now()) // it is not read
		_, err := c.Write([]byte("d"))
		if closed := errors.Is(err, io.ErrClosedPipe); s.unasked.Load() == asked || closed == asked {
			t.Errorf("%s: taken for an answer: %v; the connection is closed: %v (%v)", name, !s.unasked.Load(), closed, err)
		}
		if s.gotConn(httptrace.GotConnInfo{}); s.unasked.Load() {
			t.Errorf("%s: what another connection answers is refused too", name)
		}
	}
}
