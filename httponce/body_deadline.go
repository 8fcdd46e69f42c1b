package httponce

import (
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// readBody reads a request's body to its end, so that no claim is held while a client sends. It returns fill's errors,
// or one that wraps os.ErrDeadlineExceeded if the client was too slow for the limit or the server.
//
// It checks the declared length first: for a client that asks before it sends (Expect: 100-continue), only the first
// read sends 100 Continue.
func (b *body) readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > limit {
		return errBodyTooLarge
	}
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if within < 0 || server != nil && server.ReadTimeout > 0 && server.ReadTimeout <= within {
		return b.fill(r.Body, r.ContentLength, limit, time.Time{}) // the server's own deadline is the sooner
	}
	now := time.Now()
	until := now.Add(within)
	switch conn := deadlines(w); {
	case conn != nil && conn.SetReadDeadline(until) == nil:
		err := b.fill(r.Body, r.ContentLength, limit, until)
		if err == nil {
			// The deadline left in place ends the rest of an unwanted body. After a complete body it would end the connection,
			// and with it the handler's context.
			err = conn.SetReadDeadline(serverDeadline(server, now))
		}
		return err
	case server != nil:
		return b.fillTimeout(r, limit, until)
	}
	return b.fill(r.Body, r.ContentLength, limit, until) // no connection: a test, or a body already in memory
}

// serverDeadline is what the server has set for the reading of a request that came a moment ago.
func serverDeadline(server *http.Server, begun time.Time) time.Time {
	if server == nil || server.ReadTimeout <= 0 {
		return time.Time{}
	}
	return begun.Add(server.ReadTimeout)
}

type readDeadliner interface {
	SetReadDeadline(time.Time) error
}

// deadlines returns what sets the deadline of a connection, or nil. It is what [http.ResponseController] does,
// without an error that costs allocations.
func deadlines(w http.ResponseWriter) readDeadliner {
	for {
		switch v := w.(type) {
		case readDeadliner:
			return v
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// fillTimeout reads where the connection is out of reach, behind a ResponseWriter that hides it. A read that comes too
// late goes on in its goroutine until the server ends it, which it does as soon as the handler has returned.
func (b *body) fillTimeout(r *http.Request, limit int64, until time.Time) error {
	read := &lateRead{body: body{memory: b.memory, files: b.files}, done: make(chan struct{})}
	go read.fill(r.Body, r.ContentLength, limit, until)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-read.done:
	case <-timer.C:
		if !read.settled.Swap(true) {
			return os.ErrDeadlineExceeded
		}
		<-read.done
	}
	b.content = read.body.content
	if read.panicked != nil {
		panic(read.panicked)
	}
	return read.err
}

// lateRead is a read that may come too late.
type lateRead struct {
	body     body
	err      error
	panicked any
	settled  atomic.Bool // by the first of the two: the end of the read, or the timeout
	done     chan struct{}
}

func (l *lateRead) fill(src io.Reader, declared, limit int64, until time.Time) {
	defer func() {
		l.panicked = recover()
		if l.settled.Swap(true) {
			l.body.release()
		}
		close(l.done)
	}()
	l.err = io.ErrUnexpectedEOF // should src end this goroutine
	l.err = l.body.fill(src, declared, limit, until)
}
