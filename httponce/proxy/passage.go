package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// passage is one request on its way through a proxy.
type passage struct {
	w       http.ResponseWriter
	attempt *everonce.Attempt // nil for a request without a key
	bodyErr error             // the request's body could not be read
	upload  *upload           // nil where no body flows
	asked   bool              // it came as far as the transport
	answer  answerBody
	stream  atomic.Bool // the answer passes as it comes
}

type passageKey struct{}

func withPassage(ctx context.Context, x *passage) context.Context {
	return context.WithValue(ctx, passageKey{}, x)
}

func passageOf(r *http.Request) *passage {
	x, ok := r.Context().Value(passageKey{}).(*passage)
	if !ok { // only ServeHTTP gets requests to here
		panic("proxy: a request that did not come through ServeHTTP")
	}
	return x
}

// answered checks the upstream's answer before it is passed on.
func answered(res *http.Response) error {
	x := passageOf(res.Request)
	if res.StatusCode < 100 { // net/http reads it, and would panic where it is to be written
		return fmt.Errorf("%03d is not a status", res.StatusCode)
	}
	if _, typed := res.Header["Content-Type"]; !typed {
		keepContentType(x.w.Header())
	}
	wire.OnlyTrailers(res.Trailer)
	if x.attempt == nil {
		return nil
	}
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is the connection
		return nil
	}
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil && kind == "text/event-stream" {
		x.stream.Store(true)
	}
	x.answer.ReadCloser = res.Body
	res.Body = &x.answer
	switch res.StatusCode {
	case http.StatusConflict, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusLoopDetected:
		if wire.IsProblem(res.Header) {
			x.markTemporary(res)
		}
	}
	return nil
}

// keepContentType keeps net/http from guessing a Content-Type: it might turn a user's text into a page.
func keepContentType(h http.Header) {
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil
	}
}

// markTemporary checks for a temporary problem of a service that honours keys itself. After a conflict (another attempt
// is running, or the outcome is unknown) this request did nothing. After any other it is not known whether the
// operation was done.
func (x *passage) markTemporary(res *http.Response) {
	text, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxProblem+1))
	if d, unread := wire.ReadProblem(res.Header, text); err == nil && unread == nil {
		switch {
		case res.StatusCode == http.StatusConflict && (d.Says(wire.InProgress) || d.Is(wire.Unknown)):
			wire.MarkNotDone(x.w)
		case d.Temporary():
			wire.MarkUnknown(x.w)
		}
	}
	res.Body = &joined{Reader: io.MultiReader(bytes.NewReader(text), res.Body), Closer: res.Body}
}

// readable asks for no other coding than gzip, which [wire.ReadProblem] reads: a problem of the service's that could
// not be read would be saved as a final answer. A client that gives gzip a weight gets no coding.
func readable(h http.Header) {
	takes := h["Accept-Encoding"]
	if len(takes) == 0 { // then servers choose none
		return
	}
	coding := "identity"
	for taken := range strings.SplitSeq(strings.Join(takes, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(taken), "gzip") {
			coding = "gzip"
		}
	}
	h["Accept-Encoding"] = []string{coding}
}

// holding is the ResponseWriter of an attempt. ReverseProxy flushes what has no Content-Length after every
// piece; a middleware takes a flush for a stream, whose body it cannot keep.
type holding struct {
	headerKeeper
	x    *passage
	gone bool // the client takes no more
}

// Write passes on. A client that disconnects does not end a stream: ReverseProxy would panic, and close the upstream's
// connection while it works. The upstream's answer is read to its end.
func (h *holding) Write(p []byte) (int, error) {
	if h.gone {
		return len(p), nil
	}
	n, err := h.ResponseWriter.Write(p)
	if err != nil && streams(h.ResponseWriter) {
		h.gone = true
		return len(p), nil
	}
	return n, err
}

// FlushError flushes a stream, but not a held answer.
func (h *holding) FlushError() error {
	if h.x.stream.Load() || streams(h.ResponseWriter) {
		return http.NewResponseController(h.ResponseWriter).Flush()
	}
	return nil
}

// streams reports whether the middleware around w sends what it is given as it comes.
func streams(w http.ResponseWriter) bool {
	recorder, ok := wire.Unwrapped[wire.Recorder](w)
	return ok && recorder.Sending()
}

// copyBuffers are what answers are copied through.
var copyBuffers bufferPool

const copyBufferSize = 32 << 10

type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, copyBufferSize)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
