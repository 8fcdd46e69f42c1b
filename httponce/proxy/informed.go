package proxy

import (
	"maps"
	"net/http"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// informed is the ResponseWriter that ReverseProxy gets. Behind each status below 200 that clears the header, and with
// the upstream's fields those that others around have set: here they stand again before the next ones are added.
type informed struct {
	http.ResponseWriter
	outer   http.Header // what stood there at the beginning
	cleared bool
}

func informing(w http.ResponseWriter) informed {
	i := informed{ResponseWriter: w}
	if h := w.Header(); len(h) > 0 {
		i.outer = h.Clone()
	}
	return i
}

func (w *informed) Header() http.Header {
	h := w.ResponseWriter.Header()
	if w.cleared {
		w.cleared = false
		maps.Copy(h, w.outer)
	}
	return h
}

func (w *informed) WriteHeader(status int) {
	if w.cleared = status < http.StatusOK; w.cleared {
		wire.Inform(w.ResponseWriter, status)
	} else {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *informed) Unwrap() http.ResponseWriter { return w.ResponseWriter }
