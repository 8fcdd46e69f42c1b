package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
)

// errNotLoopback: figures are for whoever runs the proxy.
var errNotLoopback = errors.New("is not a loopback address, so anybody could read /metrics; if that is what you want, set admin-anywhere")

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

// readiness tells whether requests should come here.
type readiness struct {
	store    everonce.Store
	log      *slog.Logger
	draining atomic.Bool

	mu      sync.Mutex
	written time.Time // when the store has last taken a write that was tried
	refused bool      // the last that was tried was not taken
}

const (
	// readyWithin is how long the store has to answer.
	readyWithin = 2 * time.Second
	// writeEvery is how long the store is taken to accept writes after one that it took.
	writeEvery = 5 * time.Second
)

// probe is a record that is not there.
var probe = everonce.Key{Scope: everonce.ScopeOf("everonce", "proxy", "readiness"), ID: "probe"}.RecordID()

// Why requests should not come here. What the store said is for the log.
var (
	errDraining    = errors.New("draining")
	errUnreachable = errors.New("the store cannot be reached")
	errNoWrites    = errors.New("the store takes no writes")
)

func (s *readiness) check(ctx context.Context) error {
	if s.draining.Load() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if _, err := s.store.Get(ctx, everonce.GetRequest{ID: probe, Brief: true}); err != nil {
		return errUnreachable
	}
	if store, ok := s.store.(everonce.WriteChecker); ok {
		return s.write(ctx, store)
	}
	return nil
}

// write tries a write now and then, and after one that was not taken each time.
func (s *readiness) write(ctx context.Context, store everonce.WriteChecker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.refused && !s.written.IsZero() && time.Since(s.written) < writeEvery {
		return nil
	}
	err := store.CheckWrite(ctx)
	if errors.Is(ctx.Err(), context.Canceled) { // whoever asked has gone
		return errNoWrites
	}
	switch changed := s.refused != (err != nil); {
	case changed && err != nil:
		s.log.Error("not ready: the store takes no writes, so that no request with a new key can be done", "error", err)
	case changed:
		s.log.Info("ready again: the store takes writes")
	}
	if s.refused = err != nil; s.refused {
		return errNoWrites
	}
	s.written = time.Now()
	return nil
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
	mux.Handle("GET /metrics", s.metrics.handler())
	return mux
}
