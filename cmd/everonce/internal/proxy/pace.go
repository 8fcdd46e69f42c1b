package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/everonce/everonce"
)

// pacedWriter is the ResponseWriter of every request: a client that takes nothing for too long is cut off, however
// long the whole answer takes. It also sees the status and the size.
type pacedWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	until  time.Time // the deadline that is set
	stream bool      // over HTTP/2, where a passed deadline ends the stream even if no write is in progress
	last   bool      // the connection ends with this answer

	status int
	bytes  int64
}

func newPacedWriter(w http.ResponseWriter, r *http.Request, stall time.Duration) *pacedWriter {
	p := &pacedWriter{ResponseWriter: w, rc: http.NewResponseController(w), stall: stall, stream: r.ProtoMajor > 1, last: lastOnConn(r)}
	if !p.stream {
		p.extend() // net/http writes too: 100 Continue
	}
	return p
}

// extend gives the client time again. It keeps a deadline that is still almost whole.
func (p *pacedWriter) extend() {
	now := time.Now()
	if p.until.Sub(now) > p.stall*3/4 {
		return
	}
	p.until = now.Add(p.stall)
	_ = p.rc.SetWriteDeadline(p.until) //nolint:errcheck // a hijacked connection is not ours
}

// written is the end of a write: from now on the client waits, and need not take anything.
func (p *pacedWriter) written() {
	if p.stream {
		p.until = time.Time{}
		_ = p.rc.SetWriteDeadline(p.until) //nolint:errcheck // as above
	}
}

// WriteHeader sends the status.
func (p *pacedWriter) WriteHeader(status int) {
	if status >= http.StatusOK && p.status == 0 {
		p.status = status
		if p.last {
			p.Header().Set("Connection", "close")
		}
	}
	p.extend()
	defer p.written()
	p.ResponseWriter.WriteHeader(status)
}

// pieceSize is as much as is written under one deadline.
const pieceSize = 64 << 10

// Write writes a body, piece by piece.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	if p.status == 0 {
		p.WriteHeader(http.StatusOK)
	}
	defer p.written()
	for {
		piece := b[:min(len(b), pieceSize)]
		p.extend()
		m, err := p.ResponseWriter.Write(piece)
		n += m
		p.bytes += int64(m)
		if b = b[len(piece):]; err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// FlushError sends what is buffered.
func (p *pacedWriter) FlushError() error {
	if p.status == 0 {
		p.WriteHeader(http.StatusOK)
	}
	p.extend()
	defer p.written()
	return p.rc.Flush()
}

// Hijack takes the connection over.
func (p *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := p.rc.Hijack()
	if err == nil {
		p.status = http.StatusSwitchingProtocols
	}
	return c, rw, err
}

// Unwrap is for [http.ResponseController].
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// end leaves time for what net/http still has in its buffer.
func (p *pacedWriter) end() {
	if p.status == 0 {
		p.WriteHeader(http.StatusOK)
	}
	p.extend()
}

// pacedBody is the body of a request that flows through: a client that sends nothing for too long is cut off.
type pacedBody struct {
	io.ReadCloser
	rc     *http.ResponseController
	stall  time.Duration
	stream bool // over HTTP/2, where a passed deadline ends the body even if no read is in progress

	mu    sync.Mutex // the transport may still be reading when the handler returns
	until time.Time
	ended bool
}

// Read reads from the client.
func (p *pacedBody) Read(b []byte) (int, error) {
	p.extend()
	n, err := p.ReadCloser.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := errors.Is(err, io.EOF)
	if (whole || p.stream) && !p.ended { // a client that waits for its answer, or to be read, need not send
		p.ended, p.until = whole, time.Time{}
		_ = p.rc.SetReadDeadline(p.until) //nolint:errcheck // a hijacked connection is not ours
	}
	return n, err
}

// extend gives the client time again. It keeps a deadline that is still almost whole.
func (p *pacedBody) extend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !p.ended && p.until.Sub(now) <= p.stall*3/4 {
		p.until = now.Add(p.stall)
		_ = p.rc.SetReadDeadline(p.until) //nolint:errcheck // as above
	}
}

// end is when the handler returns. The connection is the server's then: it reads what is left, under a deadline too;
// and what the transport may still be reading must not touch it.
func (p *pacedBody) end() {
	if !p.stream { // what is left of a stream is dropped
		p.extend()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// paced puts such a body into requests without a key.
func paced(next http.Handler, stall time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, keyed := everonce.AttemptFrom(r.Context()); !keyed && r.Body != nil && r.Body != http.NoBody {
			b := &pacedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), stall: stall, stream: r.ProtoMajor > 1}
			r.Body = b
			defer b.end()
		}
		next.ServeHTTP(w, r)
	})
}
