package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/everonce/everonce/httponce"
)

// access is one request, for the log and the figures. It has no credentials, no key, no query, and of the headers
// X-Forwarded-For alone.
type access struct {
	served *httponce.Served // nil for a request without a key
}

type accessKey struct{}

// observe is for [httponce.Options.Observe].
func (s *Server) observe(ctx context.Context, served httponce.Served) {
	s.metrics.served(ctx, served)
	if a, ok := ctx.Value(accessKey{}).(*access); ok {
		a.served = &served
	}
}

// front is the outermost handler.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serving.begin()
		defer s.serving.end()
		begun := time.Now()
		restoreTLS(r)
		p, a := newPacedWriter(w, r, s.conf.Stall), &access{}
		r = r.WithContext(context.WithValue(r.Context(), accessKey{}, a))
		defer func() {
			cause := recover()
			if cause == nil {
				p.end()
			}
			s.logAccess(r, p, a, begun, cause != nil)
			if cause != nil {
				panic(cause)
			}
		}()
		switch {
		case r.Method == http.MethodConnect: // this is no tunnel
			w.Header().Set("Connection", "close")
			http.Error(p, "CONNECT is not offered here", http.StatusNotImplemented)
			return
		case r.Method == http.MethodOptions && r.RequestURI == "*": // a question to this server, and to no service behind it
			return
		}
		next.ServeHTTP(p, r)
	})
}

func (s *Server) logAccess(r *http.Request, p *pacedWriter, a *access, begun time.Time, aborted bool) {
	if a.served == nil {
		s.metrics.withoutKey(r.Context(), p.status)
	}
	if !s.conf.AccessLog {
		return
	}
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs,
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", p.status), slog.Int64("bytes", p.bytes),
		slog.Duration("took", time.Since(begun)), slog.String("client", clientOf(r)), slog.String("proto", r.Proto))
	if told := forwardedFor(r); s.conf.TrustForwarded && told != "" {
		attrs = append(attrs, slog.String("forwarded_for", told))
	}
	if aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if served := a.served; served != nil {
		attrs = append(attrs, slog.String("route", s.metrics.route(served.Route)), slog.String("outcome", served.How()))
		if served.KeyHash != "" { // what was refused before its key counted has no record to look for
			attrs = append(attrs, slog.String("key", served.KeyHash))
		}
		if served.Problem != "" {
			attrs = append(attrs, slog.String("problem", served.Problem))
		}
		if served.Waited > 0 {
			attrs = append(attrs, slog.Duration("waited", served.Waited))
		}
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// maxForwardedFor bounds what the log has of a header.
const maxForwardedFor = 256

// forwardedFor returns for whom what is in front says that it sends the request: the end of that, where it is long,
// which the nearest wrote.
func forwardedFor(r *http.Request) string {
	told := strings.Join(r.Header["X-Forwarded-For"], ", ")
	return told[max(0, len(told)-maxForwardedFor):]
}

// clientOf returns the address of a client, without its port.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
