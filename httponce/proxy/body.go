package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// heldBody is up to which size the body of an attempt is handed to net/http in memory: head and body leave in
// one packet then, and a body that came in chunks has a length.
const heldBody = 64 << 10

// holdBody gives a request with a small body that body in memory, and sets the length of a larger one, if in comes from
// a middleware, which has read it to its end.
func holdBody(out *http.Request, in io.Reader) error {
	if out.Body == nil || out.Body == http.NoBody || out.ContentLength > heldBody || len(out.Trailer) > 0 {
		return nil // nothing to hold, too much of it, or fields that only chunks can carry
	}
	length := out.ContentLength
	if kept, ok := in.(interface{ Left() int64 }); ok {
		length = kept.Left()
	}
	head := make([]byte, 0, max(out.ContentLength, bytes.MinRead))
	b := bytes.NewBuffer(head)
	n, err := b.ReadFrom(io.LimitReader(out.Body, heldBody+1))
	switch {
	case err != nil:
		return err
	case n > heldBody:
		if length >= 0 {
			out.ContentLength, out.TransferEncoding = length, nil
		}
		out.Body = &joined{Reader: io.MultiReader(b, out.Body), Closer: out.Body}
		return nil
	}
	out.ContentLength, out.TransferEncoding = n, nil
	out.Body = io.NopCloser(b)
	if n == 0 {
		out.Body = nil
	}
	return nil
}

// joined is what was read of a body, and the rest of it.
type joined struct {
	io.Reader
	io.Closer
}

// sendOnce makes a request that [http.Transport] sends at most once.
//
// The transport sends a request again, without a word, if a connection that it used before dies under it, and
// the request is one that it takes for idempotent: by its method, or because it carries Idempotency-Key; and its
// body is nil, or GetBody is set. ReverseProxy makes every empty body nil. Over HTTP/2 a request without a body is
// also sent again after PROTOCOL_ERROR. So every request gets a body, even if it is empty.
func sendOnce(out *http.Request) {
	out.GetBody = nil
	if out.Body != nil && out.Body != http.NoBody {
		return
	}
	out.Body = io.NopCloser(strings.NewReader(""))
	// The transport takes a body of length 0, other than its own empty one, for one of unknown length, and would send it
	// in chunks, which not every server reads. With another transfer encoding than chunked it sends the body unchanged,
	// but leaves out its length, so the length is set by a spelling of the name that the transport does not look for.
	// HTTP/2 has its own framing and drops the field.
	out.ContentLength, out.TransferEncoding = 0, []string{"identity"}
	if _, declared := out.Header["Content-Length"]; declared || !safeMethods[out.Method] && out.Method != http.MethodDelete {
		delete(out.Header, "Content-Length")
		out.Header["content-length"] = []string{"0"}
	}
}

// upload is the body of a request without a key, which flows. Behind it the trailers have come, of which those are
// passed on that were announced.
type upload struct {
	io.ReadCloser
	trailer   http.Header
	announced []string
	failed    atomic.Pointer[clientError] // how it ended early
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		maps.DeleteFunc(u.trailer, func(name string, _ []string) bool { return !slices.Contains(u.announced, name) })
	default:
		failed := &clientError{err}
		u.failed.Store(failed)
		err = failed
	}
	return n, err
}

// clientError means that a client did not send its request without a key to the end, or disconnected: not a failure of
// the upstream.
type clientError struct{ err error }

func (e *clientError) Error() string { return e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

// asClientError returns err as a clientError, if it is one. net/http ends the context of a client whose connection
// fails before the reader gets an error: then the upload has the reason.
func (x *passage) asClientError(err error) (e *clientError, ok bool) {
	if errors.As(err, &e) {
		return e, true
	}
	if x.attempt != nil || !errors.Is(err, context.Canceled) {
		return nil, false
	}
	if x.upload != nil {
		e = x.upload.failed.Load()
	}
	return cmp.Or(e, &clientError{err}), true
}

// answer answers the client, if it is still connected. Without closing, net/http would wait for the rest of the body
// first.
func (e *clientError) answer(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	var large *http.MaxBytesError // of a middleware around the proxy
	switch {
	case errors.As(e, &large):
		http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
	case isTimeout(e):
		http.Error(w, "the request came too slowly", http.StatusRequestTimeout)
	default:
		http.Error(w, "the request broke off", http.StatusBadRequest)
	}
}

// answerBody is the body of an answer, which remembers why it could not be read to its end. It is used by one
// goroutine at a time.
type answerBody struct {
	io.ReadCloser
	err error
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *answerBody) broken() error { return b.err }
