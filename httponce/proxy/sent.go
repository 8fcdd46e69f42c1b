package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// onceTransport tells of every error whether anything had been sent.
type onceTransport struct {
	base      http.RoundTripper
	handshake time.Duration // how long after a connection was made its TLS handshake may end, the upstream's side included
}

// notSentError: no byte of the request reached the upstream's connection, or the upstream promised not to have
// processed it.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

var errBodyLost = errors.New("the request's body could not be read")

func (t *onceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := passageOf(r)
	if x.asked = true; x.bodyErr != nil {
		return nil, &notSentError{errBodyLost}
	}
	var s sending
	trace := &httptrace.ClientTrace{GotConn: s.gotConn, GotFirstResponseByte: s.firstByte}
	if r.URL.Scheme == "https" { // HTTP/2 may be spoken; where it is not, the connection knows more, and net/http copies no fields for us
		trace.WroteHeaderField = s.wroteField
	} else {
		s.fields.Store(true)
	}
	res, err := t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if res != nil && s.unasked.Load() {
		_ = res.Body.Close() //nolint:errcheck // its connection is closed
		res, err = nil, errUnasked
	}
	if err != nil && (s.wroteNothing(r) || notProcessed(err) || s.handshakeRefused(err, t.handshake)) {
		err = &notSentError{err}
	}
	if res != nil {
		res.Request = r
	}
	return res, err
}

// notProcessed reports whether an error is HTTP/2's word that a request was not processed: RST_STREAM with
// REFUSED_STREAM (RFC 9113, 8.7), or GOAWAY with a lower stream (6.8). net/http has no type for what it says
// of a request that it cannot send again; TestHTTP2Refused makes it say so.
func notProcessed(err error) bool {
	var said string
	_, said, ok := strings.Cut(err.Error(), "http2: Transport: cannot retry err [")
	if !ok {
		return false
	}
	said, _, _ = strings.Cut(said, "]")
	return said == "http2: Transport received Server's graceful shutdown GOAWAY" ||
		strings.HasPrefix(said, "stream error: ") && strings.Contains(said, "; REFUSED_STREAM")
}

// sending is what is seen of a request on its way out.
type sending struct {
	fields  atomic.Bool // its head was begun, or that is not looked at
	unasked atomic.Bool // its answer arrived before the request was written
	mu      sync.Mutex
	got     bool         // there was a connection
	tls     *tls.Conn    // conn, if it uses TLS
	conn    *countedConn // its own; nil where it is shared, as HTTP/2's are
	before  written
}

func (s *sending) gotConn(info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = true
	s.unasked.Store(false) // where net/http sends a request again, that was another connection's
	s.tls, _ = info.Conn.(*tls.Conn)
	if s.conn = ownConn(info.Conn); s.conn != nil {
		s.before = s.conn.count()
	}
}

var errUnasked = errors.New("the upstream sent bytes before the request: they are not its answer")

// firstByte is called when an answer begins. net/http may give a connection to the next request while bytes are left on
// it that no answer has announced (a body behind 204, or behind HEAD, or longer than its length), and takes them for
// the answer. That would be saved as this request's, and may be what somebody else could make the upstream say.
func (s *sending) firstByte() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := belowTLS(s.tls); c != nil {
		c.answered.Store(true)
	}
	if s.conn != nil && s.conn.heardBefore(s.before) {
		s.unasked.Store(true)
		_ = s.conn.Close() //nolint:errcheck // it must not be used again
	}
}

// belowTLS returns the connection that carries one of TLS.
func belowTLS(t *tls.Conn) *countedConn {
	if t == nil {
		return nil
	}
	c, _ := t.NetConn().(*countedConn)
	return c
}

// ownConn returns the connection that only one request at a time is on.
func ownConn(c net.Conn) *countedConn {
	if t, ok := c.(*tls.Conn); ok {
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return nil
		}
		c = t.NetConn()
	}
	own, _ := c.(*countedConn)
	return own
}

// wroteField is called before a field is encoded, so before anything is written.
func (s *sending) wroteField(string, []string) { s.fields.Store(true) }

// wroteNothing reports whether it is certain that nothing of the request was written, nor will be.
func (s *sending) wroteNothing(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.got:
		return true
	case s.conn != nil: // HTTP/1.1: the connection itself knows
		return s.conn.seal(s.before)
	case r.Context().Err() != nil: // HTTP/2: who cancels does not wait for the writer
		return false
	}
	return !s.fields.Load()
}

// handshakeRefused reports whether an error says that the upstream never ended its side of the TLS handshake, because
// of the proxy's certificate. In TLS 1.3 a client has ended its own side before the server looks at that, and what it
// has written by then is never read (RFC 8446, 4.4.4 and 6.2). Where anything was answered on the connection, or it is
// older than a handshake may last, the handshake was ended, and such an alert may be of a certificate that has expired
// since. Go's client takes no request for a certificate after it.
func (s *sending) handshakeRefused(err error, handshake time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := belowTLS(s.tls)
	return c != nil && !c.answered.Load() && time.Since(c.made) < handshake && wire.RefusesCertificate(err) && s.tls.ConnectionState().Version == tls.VersionTLS13
}

// countedConn counts what is written to a connection.
type countedConn struct {
	net.Conn
	made    time.Time
	mu      sync.Mutex
	written written
	heard   int // how many writes had begun when the last bytes came in
	writers int
	sealed  bool

	answered atomic.Bool // of TLS alone: something was
}

// written is how far the writing to a connection has come.
type written struct {
	bytes  int64
	writes int // that have begun
}

var errSealed = errors.New("proxy: the connection was abandoned")

// Write writes, unless the connection was given up.
func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.sealed {
		c.mu.Unlock()
		return 0, errSealed
	}
	c.writers++
	c.written.writes++
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.writers--
	c.written.bytes += int64(n)
	c.mu.Unlock()
	return n, err
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.heard = c.written.writes
		c.mu.Unlock()
	}
	return n, err
}

// heardBefore reports whether all that has come in came before anything was written beyond before.
func (c *countedConn) heardBefore(before written) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard <= before.writes
}

func (c *countedConn) count() written {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

// seal closes the connection for writes if nothing was written since before, and reports whether it did. Later writes
// fail. A connection whose request failed is not used again.
func (c *countedConn) seal(before written) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writers > 0 || c.written.bytes != before.bytes {
		return false
	}
	c.sealed = true
	return true
}
