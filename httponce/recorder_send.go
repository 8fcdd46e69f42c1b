package httponce

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// send sends what was held. Of an answer that was a stream there is nothing left to send.
func (r *recorder) send() {
	if r.mode == modeHold {
		r.sendHeld()
	}
}

// sendHeld sends the header in the form that it had when the handler wrote it, the body, and then the trailers that the
// handler left in the header.
func (r *recorder) sendHeld() {
	var left http.Header
	if r.used && r.status != 0 {
		h := r.x.w.Header()
		switch {
		case r.separate:
			left = r.header
			r.sent.put(h)
		case !r.sent.are(h):
			left = h.Clone()
			r.sent.put(h)
		}
	}
	r.x.putSessionHeaders()
	if r.x.echoed != "" { // else the header is not asked for
		r.x.echo(r.x.w.Header())
	}
	for name, values := range left {
		if wire.IsPrefixed(name) { // net/http sends no trailer behind a body that it has counted
			r.x.w.Header()[name] = values
		}
	}
	if r.x.retryIsUseless() {
		wire.SetRetry(r.x.w.Header(), false)
	}
	if r.explicit {
		r.x.w.WriteHeader(r.status)
	}
	r.held.send(r.x.w)
	if left != nil {
		replaceHeader(r.x.w.Header(), left)
	}
}

// headSize returns how much room the saved head needs, and what may follow the body.
func headSize(fs fields) int {
	n := 16
	for i := range fs {
		n += len(fs[i].name) + 4
		for j := range fs[i].len() {
			n += len(fs[i].value(j)) + 2
		}
	}
	return n
}

// trailers returns what the handler left in the header to be sent after the body.
func (r *recorder) trailers() (fs fields) {
	if !r.used {
		return nil
	}
	var declared map[string]bool
	if f := r.sent.named("Trailer"); f != nil {
		declared = f.listed(nil)
	}
	for name, values := range r.header {
		if wire.IsPrefixed(name) || declared != nil && declared[strings.ToLower(name)] {
			fs = fs.taken(http.Header{name: values})
		}
	}
	return r.x.route.headers.mark(fs, nil)
}

// keep makes what was held the saved answer. rest says where the pieces are that are not in it; elided, that
// there is no body in it.
func (r *recorder) keep(rest *pieces, elided bool) *savedAnswer {
	s := &r.saved
	s.raw, s.head = r.held.buf, r.held.head
	if elided {
		s.raw = bytes.Clone(s.raw[:s.head])
		s.raw[1] |= flagElided
		return s
	}
	s.raw = appendFoot(s.raw, r.trailers(), rest)
	return s
}

// retryIsUseless reports whether an SDK's own retry would only get outcome-unknown, and hide the handler's answer from
// its user. Where all effects are in steps, the retry may complete them: that depends on the steps, so the SDK decides.
func (x *exchange) retryIsUseless() bool {
	return x.problems.Stripe && x.served.Outcome == everonce.Unknown && x.route.Reconcile == nil &&
		(x.recv == nil || !x.recv.Options().EffectsInSteps)
}
