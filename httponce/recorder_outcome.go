package httponce

import (
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// ending says what the answer means for its key.
func (r *recorder) ending() Ending {
	switch {
	case r.notDone:
		return Released
	case r.unknown:
		return Unknown
	case r.mode == modeHijacked, r.status == http.StatusSwitchingProtocols:
		return Saved // what was said on the connection is between the two
	}
	return r.x.route.save.of(r.status)
}

// marked reports whether the handler, or a [Proxy], has said that this is no answer for good, whatever its status.
func (r *recorder) marked() bool { return r.notDone || r.unknown }

// elided reports whether the body is not kept.
func (r *recorder) elided() bool {
	return r.mode != modeHold || r.held.size > r.x.route.MaxAnswer
}

// outcome returns the answer as the core takes it. save keeps the pieces of a large one; where they cannot be kept it
// is elided.
func (r *recorder) outcome(e Ending, save func(rest [][]byte) (*pieces, error)) (Answer, error) {
	switch e {
	case Released:
		return Answer{}, everonce.NotDone(statusError(r.status))
	case Unknown:
		return Answer{}, statusError(r.status)
	}
	elided := r.elided()
	var rest *pieces
	if !elided && len(r.held.rest) > 0 {
		if elided = save == nil; !elided {
			var err error
			if rest, err = save(r.held.rest); err != nil {
				elided = true
				r.x.log.WarnContext(r.x.r.Context(), "httponce: the pieces of a large answer could not be kept: its duplicates get status and headers",
					"route", r.x.served.Route, "key", r.x.keyHash(), "error", err)
			}
		}
	}
	a := Answer{Status: r.savedStatus(), Elided: elided, saved: r.keep(rest, elided)}
	if a.Status >= http.StatusBadRequest {
		return Answer{}, everonce.Permanent(failureCode(a.Status), nil, a.encode())
	}
	return a, nil
}

// NotDone tells the middleware around w that this request had no effect, whatever its status: its key may be used
// again. It does nothing without a middleware, or if a ResponseWriter between them has no method Unwrap.
func NotDone(w http.ResponseWriter) {
	wire.MarkNotDone(w)
}
