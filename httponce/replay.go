package httponce

import (
	"io"
	"net/http"
	"strings"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// replay sends a saved answer. An empty mark means that this request is the first to get it. Headers that outer
// middlewares have set remain, except those that the handler had set itself.
func (x *exchange) replay(a Answer, mark string) {
	var rest [][]byte
	if s := a.saved; s != nil && s.pieces.total > 0 && !a.Elided {
		var err error
		if rest, err = s.pieces.fetch(x.r.Context(), x.recv, x.key); err != nil {
			x.log.WarnContext(x.r.Context(), "httponce: a piece of a saved answer cannot be read: only status and headers are sent",
				"route", x.served.Route, "key", x.keyHash(), "error", err)
			a.Elided = true
		}
	}
	if a.Elided && mark == markReplayed {
		mark = markElided
	}
	h := x.w.Header()
	spare := a.putHeader(h)
	if a.Elided {
		withoutBody(h)
	}
	x.putSessionHeaders()
	x.mark(h, mark, spare)
	x.served.Status = a.Status
	if a.Elided {
		x.w.WriteHeader(a.Status)
		return
	}
	a.putTrailers(h, wire.IsPrefixed) // so that net/http does not count the body
	x.w.WriteHeader(a.Status)
	if err := a.writeBody(x.w); err != nil {
		return // the client has gone
	}
	for _, piece := range rest {
		if _, err := x.w.Write(piece); err != nil {
			return
		}
	}
	a.putTrailer(h)
}

// mark says that an answer is not sent for the first time, and lets scripts of other origins read that.
func (x *exchange) mark(h http.Header, mark string, spare []string) {
	if mark == "" {
		return
	}
	h[x.marker] = append(spare, mark)
	if len(x.r.Header["Origin"]) > 0 {
		h.Add("Access-Control-Expose-Headers", x.marker)
	}
}

// echo repeats the key, where that is asked for.
func (x *exchange) echo(h http.Header) {
	if x.echoed != "" {
		h[x.header] = []string{x.echoed}
	}
}

func (a *Answer) writeBody(w http.ResponseWriter) (err error) {
	switch {
	case a.saved == nil:
		if len(a.Body) > 0 {
			_, err = w.Write(a.Body)
		}
	case a.saved.head == a.saved.end:
	case a.saved.end-a.saved.head <= 2048: // net/http's buffer: a longer string would be cut into pieces of that size
		_, err = io.WriteString(w, a.saved.body())
	default:
		_, err = w.Write([]byte(a.saved.body()))
	}
	return err
}

// putHeader adds the answer's headers to what stands in h. It may return room for one value more.
func (a *Answer) putHeader(h http.Header) (spare []string) {
	if a.saved != nil {
		return a.saved.each(func(name string, values []string, added bool) {
			old := h[name]
			switch {
			case wire.IsPrefixed(name) && !wire.Trails(name): // set before the body, it is in the head
				return
			case added && len(values) == 0:
				delete(h, name)
				return
			case added && len(old) > 0:
				values = append(old[:len(old):len(old)], values...)
			}
			h[name] = values
		})
	}
	for name, values := range a.Header {
		if !wire.NeverSaved[http.CanonicalHeaderKey(name)] && (!wire.IsPrefixed(name) || wire.Trails(name)) {
			h[name] = values
		}
	}
	if declared := a.declared(); len(declared) > 0 {
		h["Trailer"] = declared
	}
	return nil
}

// putTrailer adds the trailers, when the body has been written.
func (a *Answer) putTrailer(h http.Header) { a.putTrailers(h, func(string) bool { return true }) }

func (a *Answer) putTrailers(h http.Header, wanted func(string) bool) {
	if a.saved != nil {
		a.saved.eachTrailer(func(name string, values []string, _ bool) {
			if wanted(name) && wire.Trails(name) {
				h[name] = values
			}
		})
		return
	}
	for name, values := range a.Trailer {
		if wanted(name) && wire.Trails(name) && !wire.NeverSaved[http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))] {
			h[name] = values
		}
	}
}

// ofBody are the headers that say something of a body.
var ofBody = map[string]bool{
	"Content-Length": true, "Content-Encoding": true, "Content-Range": true, "Content-Digest": true,
	"Repr-Digest": true, "Digest": true, "Content-Md5": true, "Trailer": true,
}

// withoutBody removes the headers that describe a body that is not sent: a client would wait for it. A handler may have
// written a name in its own spelling, which net/http sends unchanged, beside its own Content-Length.
func withoutBody(h http.Header) {
	for name := range h {
		if wire.IsPrefixed(name) || ofBody[http.CanonicalHeaderKey(name)] {
			delete(h, name)
		}
	}
}
