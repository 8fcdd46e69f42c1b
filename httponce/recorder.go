package httponce

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// recorder is the ResponseWriter that a handler sees. It holds the answer until it is recorded, so that an attempt that
// lost its lease sends nothing at all. For the handler it is like net/http's own: the same errors and the same panics.
//
// It is used like any ResponseWriter, by one goroutine at a time, but for gate: see within.
type recorder struct {
	x    *exchange
	gate *gate // set where the client may be answered while the handler goes on

	mode      mode
	buffers   bool // never a stream: what is too large to be kept is held all the same
	separate  bool // header is no other's: else it is x.w's own
	used      bool // the handler has asked for the header
	explicit  bool // it has called WriteHeader
	notDone   bool
	unknown   bool
	respelled bool   // the answer redirects to another spelling of the path
	upstream  string // the name of the problem that a proxy answered itself
	header    http.Header
	before    fields // what stood in the header when the handler was called
	sent      fields // what stood there when it called WriteHeader
	status    int    // 0 until then
	declared  int64  // the Content-Length, or -1
	written   int64  // what it wrote, refused writes included, as net/http counts
	held      held
	saved     savedAnswer
	beforeOwn [2]field // most headers have room here
	sentOwn   [3]field
}

// mode is what becomes of what the handler writes.
type mode uint8

const (
	modeHold     mode = iota // kept, to be sent when it is recorded
	modeStream               // sent at once
	modeHijacked             // the connection is the handler's
	modeDrop                 // it is dropped: it is a stream, or too large to be kept, and the client has been answered
)

// init makes the recorder of a handler whose answer goes to x.w. The header that the handler sees is x.w's own, unless
// it is separate: an attempt that is not the last one, or that goes on when the client has been answered, must not
// touch x.w's.
func (r *recorder) init(x *exchange, separate bool) {
	r.x, r.separate, r.declared = x, separate, -1
	r.held.room = x.pieceSize
	r.before, r.sent = r.beforeOwn[:0], r.sentOwn[:0]
}

func (r *recorder) Header() http.Header {
	if !r.used {
		r.used = true
		r.header = r.x.w.Header()
		r.before = r.before.taken(r.header)
		if r.status != 0 {
			r.sent = r.sent.taken(r.header)
		}
		if r.separate {
			r.header = make(http.Header, len(r.before))
			r.before.put(r.header)
		}
	}
	return r.header
}

// WriteHeader sets the status of the answer. Statuses below 200 are sent at once.
func (r *recorder) WriteHeader(status int) {
	switch {
	case r.mode == modeHijacked:
		r.misused("WriteHeader on a hijacked connection")
		return
	case r.status != 0:
		r.misused("superfluous WriteHeader")
		return
	case status < 100 || status > maxStatus:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http says it
	case status < http.StatusOK && (status != http.StatusSwitchingProtocols || r.x.r.ProtoMajor != 1):
		r.inform(status)
		return
	}
	r.explicit = true
	r.setStatus(status)
	if status == http.StatusSwitchingProtocols {
		r.switchProtocols()
	}
}

// setStatus is the end of the header: what is changed in it afterwards is not sent.
func (r *recorder) setStatus(status int) {
	r.status = status
	if !r.used {
		return
	}
	r.sent = r.sent.taken(r.header)
	if length := r.header["Content-Length"]; len(length) > 0 {
		if n, err := strconv.ParseInt(length[0], 10, 64); err == nil {
			r.declared = n
		}
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.mode >= modeStream {
		return r.writeThrough(p)
	}
	return r.hold(p, "")
}

func (r *recorder) WriteString(s string) (int, error) {
	if r.mode >= modeStream {
		return r.writeThrough([]byte(s))
	}
	return r.hold(nil, s)
}

// hold keeps p, or s, where net/http would take it.
func (r *recorder) hold(p []byte, s string) (int, error) {
	n := len(p) + len(s)
	if r.status == 0 {
		r.setStatus(http.StatusOK)
		r.explicit = true // should net/http take nothing of it, then no write says it
	}
	switch {
	case n == 0:
		return 0, nil
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	}
	r.written += int64(n)
	if r.declared >= 0 && r.written > r.declared {
		return 0, http.ErrContentLength
	}
	if !r.buffers && r.held.size+int64(n) > r.x.route.MaxAnswer {
		return r.outgrow(p, s)
	}
	if r.held.buf == nil {
		r.begin(n)
	}
	r.held.add(p, s)
	return n, nil
}

// begin writes the head of what is saved; the body follows in the same bytes.
func (r *recorder) begin(body int) {
	fs := r.x.route.headers.mark(r.sent, r.before)
	r.held.buf = appendHead(make([]byte, 0, headSize(fs)+min(body, r.held.room)), 0, r.savedStatus(), fs, nil)
	r.held.head = len(r.held.buf)
}

// savedStatus is what a duplicate gets. One whose connection was taken over cannot take it over again.
func (r *recorder) savedStatus() int {
	if r.status < http.StatusOK {
		return http.StatusOK
	}
	return r.status
}

// bodyAllowed reports whether an answer of that status has a body (RFC 9110, 6.4.1).
func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}

// wroteNothing reports whether the handler has said nothing: neither a status, nor a body, nor [NotDone].
func (r *recorder) wroteNothing() bool { return r.status == 0 && r.mode != modeHijacked && !r.notDone }

func (r *recorder) finish() {
	if r.status == 0 && r.mode != modeHijacked {
		r.setStatus(http.StatusOK)
	}
	if r.held.buf == nil {
		r.begin(0)
	}
	if r.used {
		wire.WithoutWrongTrailers(r.header)
	}
	if r.mode == modeStream && r.separate && r.used && r.enter() {
		replaceHeader(r.x.w.Header(), r.header) // its trailers
		r.leave()
	}
}

func (r *recorder) Sending() bool { return r.mode == modeStream || r.mode == modeHijacked }

// discard makes the header what it was before the handler was called, for another's answer to be sent.
func (r *recorder) discard() {
	if r.used && !r.separate && r.mode == modeHold {
		r.before.put(r.header)
	}
}

func (r *recorder) location() string {
	if f := r.sent.named("Location"); f != nil && f.len() > 0 {
		return f.value(0)
	}
	return ""
}

func (r *recorder) MarkNotDone() { r.notDone = true }

func (r *recorder) MarkUnknown() { r.unknown = true }

func (r *recorder) MarkUpstream(problem string) (keyHash string) {
	r.upstream = problem
	return r.x.keyHash()
}

func (r *recorder) Restart() bool {
	if r.Sending() {
		return false
	}
	if r.used {
		r.before.put(r.header)
	}
	r.status, r.explicit, r.declared, r.written = 0, false, -1, 0
	r.sent = r.sent[:0]
	r.held = held{room: r.held.room}
	return true
}
