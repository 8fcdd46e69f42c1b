package httponce

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
)

// bodyReader reads a body. Like net/http's own it may be closed while it is read.
type bodyReader struct {
	body   *body
	mu     sync.Mutex
	at     int64
	closed bool
}

// Read reads on. After Close it fails, as a request's body does.
func (r *bodyReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return 0, http.ErrBodyReadAfterClose
	case r.at >= r.body.size:
		return 0, io.EOF
	case r.body.file == nil:
		n := copy(p, r.body.mem[r.at:])
		r.at += int64(n)
		return n, nil
	}
	n, err := r.body.file.ReadAt(p, r.at)
	r.at += int64(n)
	switch {
	case n > 0:
		return n, nil
	case errors.Is(err, os.ErrClosed): // the handler has returned
		return 0, http.ErrBodyReadAfterClose
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// Left returns how many bytes are still to be read, for a proxy that sends them on.
func (r *bodyReader) Left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.size - r.at
}

// Close ends the reading.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}
