package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
)

// errNotLoopback rejects a public admin address: the metrics are for the proxy's operator.
var errNotLoopback = errors.New("is not a loopback address, so anybody could read /metrics (to allow that, set admin-anywhere)")

// checkAdmin refuses an address that others can reach, unless that is wanted.
func checkAdmin(addr string, anywhere bool) error {
	if !isAddress(addr) {
		return fmt.Errorf("admin: %q is not an address like 127.0.0.1:9464", addr)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); anywhere || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("admin: %s %w", addr, errNotLoopback)
}

// admin returns the handler of the second listener.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready.check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", s.metrics.page)
	return mux
}
