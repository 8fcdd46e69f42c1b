package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

	asking  chan struct{} // holds one while the store is asked, to whom the rest belongs
	written time.Time     // when the store has last taken a write that was tried
	why     error         // what was told last
}

func newReadiness(store everonce.Store, log *slog.Logger) *readiness {
	return &readiness{store: store, log: log, asking: make(chan struct{}, 1)}
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

// check asks the store to the end, or until its time is over, also if whoever wants to know goes sooner: why it is not ready is for
// the log all the same. Others wait meanwhile.
func (s *readiness) check(ctx context.Context) error {
	if s.draining.Load() {
		return errDraining
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	why, said := s.ask(ctx)
	switch changed := !errors.Is(why, s.why); {
	case changed && why != nil:
		s.log.Error("not ready: "+why.Error()+", so no request with a new key can be done", "error", said)
	case changed:
		s.log.Info("ready again: the store takes writes")
	}
	s.why = why
	return why
}

// ask reads, and tries a write now and then, and after one that was not taken each time. said is what the store says.
func (s *readiness) ask(ctx context.Context) (why, said error) {
	if _, err := s.store.Get(ctx, everonce.GetRequest{ID: probe, Brief: true}); err != nil {
		return errUnreachable, err
	}
	store, ok := s.store.(everonce.WriteChecker)
	if !ok || s.why == nil && !s.written.IsZero() && time.Since(s.written) < writeEvery {
		return nil, nil
	}
	if err := store.CheckWrite(ctx); err != nil {
		return errNoWrites, err
	}
	s.written = time.Now()
	return nil, nil
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
