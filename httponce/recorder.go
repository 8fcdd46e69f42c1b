package httponce

import (
	"maps"
	"net/http"

	"github.com/everonce/everonce"
)

// recorder is the ResponseWriter that a handler sees. What it is given is held until it is recorded, so that an
// attempt that lost its lease sends nothing at all.
type recorder struct {
	w       http.ResponseWriter
	route   *route
	header  http.Header
	before  http.Header // what stood in the header when the handler was called
	status  int
	body    []byte
	notDone bool
	unknown bool
}

func newRecorder(w http.ResponseWriter, rt *route) *recorder {
	r := &recorder{w: w, route: rt, header: w.Header().Clone()}
	if r.header == nil {
		r.header = http.Header{}
	}
	r.before = maps.Clone(w.Header())
	return r
}

// Header returns the headers of the answer.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader sets the status of the answer.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
}

// Write adds to the body.
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body = append(r.body, p...)
	return len(p), nil
}

// markNotDone is for [NotDone].
func (r *recorder) markNotDone() { r.notDone = true }

// markUnknown is for [Proxy], whose own 502 is no answer of the upstream's: no Save saves it.
func (r *recorder) markUnknown() { r.unknown = true }

// restart is for [Proxy], whose upstream broke off in mid-answer: it forgets what was written. It returns
// false where a part of that has been sent.
func (r *recorder) restart() bool {
	r.header = r.before.Clone()
	if r.header == nil {
		r.header = http.Header{}
	}
	r.status, r.body = 0, nil
	return true
}

// finish is the end of the handler.
func (r *recorder) finish() { r.WriteHeader(http.StatusOK) }

// ending says what the answer means for its key.
func (r *recorder) ending() Ending {
	switch {
	case r.notDone:
		return Released
	case r.unknown:
		return Unknown
	}
	return r.route.save.of(r.status)
}

// answer returns what is saved.
func (r *recorder) answer() Answer {
	a := Answer{Status: r.status, Body: r.body, Header: http.Header{}}
	for name, values := range r.header {
		if r.route.headers.saves(name) {
			a.Header[name] = values
		}
	}
	a.Elided = int64(len(a.Body)) > r.route.MaxAnswer
	return a
}

// outcome returns the answer as the core takes it.
func (r *recorder) outcome() (Answer, error) { return r.outcomeAs(r.ending()) }

// outcomeAs is outcome with an ending that somebody knows better.
func (r *recorder) outcomeAs(e Ending) (Answer, error) {
	switch e {
	case Released:
		return Answer{}, everonce.NotDone(statusError(r.status))
	case Unknown:
		return Answer{}, statusError(r.status)
	}
	a := r.answer()
	if a.Status >= http.StatusBadRequest {
		if a.Elided {
			a.Body = nil
		}
		return Answer{}, everonce.Permanent(failureCode(a.Status), nil, a.encode())
	}
	return a, nil
}

// send sends what was held.
func (r *recorder) send() {
	h := r.w.Header()
	clear(h)
	maps.Copy(h, r.header)
	r.w.WriteHeader(r.status)
	_, _ = r.w.Write(r.body) //nolint:errcheck // the client has gone: its retry is a replay
}

// NotDone tells the middleware, from inside of its handler, that nothing of this request took hold, whatever
// the status says: its key may be used again. Without a middleware around w it does nothing.
func NotDone(w http.ResponseWriter) {
	for {
		switch v := w.(type) {
		case interface{ markNotDone() }:
			v.markNotDone()
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return
		}
	}
}
