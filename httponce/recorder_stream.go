package httponce

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// errAnswered is what a handler gets that went on after its client had been answered, and wants something
// of the connection.
var errAnswered = fmt.Errorf("httponce: the client has been answered: %w", http.ErrHandlerTimeout)

// stream sends what was held, and makes the recorder one that passes on: its bytes precede its record. The
// gate is held.
func (r *recorder) stream() {
	if r.held.buf == nil {
		r.begin(0)
	}
	r.sendHeld()
	r.mode = modeStream
	r.forget()
}

func (r *recorder) forget() {
	r.held.buf = slices.Clone(r.held.buf[:r.held.head])
	r.held.rest = nil
}

// drop makes the recorder drop the body: it is too late to stream it.
func (r *recorder) drop() {
	if r.held.buf == nil {
		r.begin(0)
	}
	r.mode = modeDrop
	r.forget()
}

// switchProtocols sends a 101 at once: what follows on the connection is no answer.
func (r *recorder) switchProtocols() {
	if !r.enter() {
		r.drop()
		return
	}
	defer r.leave()
	r.stream()
}

// outgrow is a write that makes the answer larger than what is kept of one.
func (r *recorder) outgrow(p []byte, s string) (int, error) {
	if !r.enter() {
		r.drop()
		return len(p) + len(s), nil
	}
	r.stream()
	r.leave()
	if p == nil {
		p = []byte(s)
	}
	return r.writeThrough(p)
}

// overrun reports whether the handler wrote more than it had declared before its answer became a stream: net/http,
// which was not given what was refused, would take what follows.
func (r *recorder) overrun() bool {
	return r.mode == modeStream && r.declared >= 0 && r.written > r.declared
}

func (r *recorder) writeThrough(p []byte) (int, error) {
	switch {
	case r.mode == modeDrop:
		return len(p), nil
	case len(p) > 0 && r.overrun():
		return 0, http.ErrContentLength
	}
	if !r.enter() {
		return 0, errAnswered
	}
	defer r.leave()
	return r.x.w.Write(p)
}

// inform sends a status below 200, with the header as it stands.
func (r *recorder) inform(status int) {
	if !r.enter() {
		return
	}
	defer r.leave()
	if r.used && r.separate {
		h := r.x.w.Header()
		outer := h.Clone()
		defer func() { replaceHeader(h, outer) }()
		replaceHeader(h, r.header)
	}
	wire.Inform(r.x.w, status)
}

func (r *recorder) Flush() {
	_ = r.FlushError() //nolint:errcheck // http.Flusher has no error
}

func (r *recorder) FlushError() error {
	return r.control(func(c *http.ResponseController) error {
		if r.mode == modeHold {
			_, can := wire.Unwrapped[http.Flusher](r.x.w)
			if !can {
				_, can = wire.Unwrapped[interface{ FlushError() error }](r.x.w)
			}
			if !can {
				return http.ErrNotSupported
			}
			if r.status == 0 {
				r.setStatus(http.StatusOK)
			}
			r.stream()
		}
		return c.Flush()
	})
}

func (r *recorder) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	err = r.control(func(c *http.ResponseController) (err error) {
		if r.mode == modeHold && r.status != 0 {
			if _, can := wire.Unwrapped[http.Hijacker](r.x.w); !can {
				return http.ErrNotSupported
			}
			r.stream()
		}
		if conn, rw, err = c.Hijack(); err != nil {
			return err
		}
		if r.held.buf == nil {
			r.begin(0)
		}
		r.mode = modeHijacked
		return nil
	})
	return conn, rw, err
}

func (r *recorder) SetReadDeadline(t time.Time) error {
	return r.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	return r.control(func(c *http.ResponseController) error { return c.SetWriteDeadline(t) })
}

func (r *recorder) EnableFullDuplex() error {
	return r.control((*http.ResponseController).EnableFullDuplex)
}

// CloseNotify implements the deprecated http.CloseNotifier, which some routers still look for. If the ResponseWriter
// around it has none, the channel never receives.
func (r *recorder) CloseNotify() <-chan bool {
	gone := make(<-chan bool)
	_ = r.control(func(*http.ResponseController) error { //nolint:errcheck // it has no error to return
		if n, ok := wire.Unwrapped[interface{ CloseNotify() <-chan bool }](r.x.w); ok {
			gone = n.CloseNotify()
		}
		return nil
	})
	return gone
}

// control does something to the connection, as long as it is the handler's.
func (r *recorder) control(do func(*http.ResponseController) error) error {
	if !r.enter() {
		return errAnswered
	}
	defer r.leave()
	return do(http.NewResponseController(r.x.w))
}

// enter reports whether the writer is still the handler's, and keeps it so until leave.
func (r *recorder) enter() bool { return r.gate == nil || r.gate.enter() }

func (r *recorder) leave() {
	if r.gate != nil {
		r.gate.leave()
	}
}

// misused reports a call that net/http would report too: it changes nothing.
func (r *recorder) misused(what string) {
	r.x.log.WarnContext(r.x.r.Context(), "httponce: "+what, "route", r.x.served.Route, "key", r.x.keyHash())
}
