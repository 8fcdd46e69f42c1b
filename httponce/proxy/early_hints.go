package proxy

import (
	"maps"
	"net/http"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// headerKeeper is the ResponseWriter that ReverseProxy gets. After each status below 200, ReverseProxy clears the
// header, and with the upstream's fields also those that outer middlewares have set. Header restores these before it
// returns.
type headerKeeper struct {
	http.ResponseWriter
	outer   http.Header // what stood there at the beginning
	cleared bool
}

func keepHeader(w http.ResponseWriter) headerKeeper {
	i := headerKeeper{ResponseWriter: w}
	if h := w.Header(); len(h) > 0 {
		i.outer = h.Clone()
	}
	return i
}

func (w *headerKeeper) Header() http.Header {
	h := w.ResponseWriter.Header()
	if w.cleared {
		w.cleared = false
		maps.Copy(h, w.outer)
	}
	return h
}

func (w *headerKeeper) WriteHeader(status int) {
	if w.cleared = status < http.StatusOK; w.cleared {
		wire.Inform(w.ResponseWriter, status)
	} else {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *headerKeeper) Unwrap() http.ResponseWriter { return w.ResponseWriter }
