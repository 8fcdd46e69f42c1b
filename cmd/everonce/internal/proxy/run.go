package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// Run serves until ctx ends, and then drains: it takes no new requests and tells so at /readyz, lets those that
// run end and be recorded, and closes the store. It returns nil when all of that was done; [ErrNotDrained] when its time
// was over, or now ended, before that. A Server runs once.
func (s *Server) Run(ctx context.Context, now <-chan struct{}) error {
	sweeping, stopSweeping := context.WithCancel(context.Background())
	swept, err := everonce.StartJanitor(sweeping, s.store, &everonce.JanitorOptions{Report: s.swept})
	if err != nil {
		stopSweeping()
		return errors.Join(err, s.close())
	}
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		s.census(sweeping)
	}()
	failed := make(chan error, 2)
	serve := func(srv *http.Server, ln net.Listener) {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	working, giveUp := context.WithCancel(context.Background())
	s.public.BaseContext = func(net.Listener) context.Context { return working }
	if s.conf.Store == storeurl.Memory {
		s.log.Warn("THE RECORDS ARE IN MEMORY, and end with this process: what is repeated after a restart is done AGAIN. For anything but a trial give a store that lasts", "store", s.conf.Store)
	}
	go serve(s.public, s.publicLn)
	if s.private != nil {
		go serve(s.private, s.privateLn)
	}
	public, private := s.Addrs()
	s.log.Info("proxy runs", "listen", public, "admin", private, "upstream", storeurl.ShownUpstream(s.conf.Upstream))
	var broke error
	select {
	case <-ctx.Done():
	case broke = <-failed:
	}
	s.ready.draining.Store(true)
	s.log.Info("proxy drains", "running", s.running.count())
	err = s.drain(now)
	giveUp()
	stopSweeping()
	<-swept
	<-counted
	if s.private != nil {
		_ = s.private.Close() //nolint:errcheck // nobody is owed an answer there
	}
	err = errors.Join(broke, err, s.close())
	if err == nil {
		s.log.Info("proxy has ended")
	}
	return err
}

// ErrNotDrained: requests were given up in mid-work. What they were about is unknown when their lease is over.
var ErrNotDrained = errors.New("ended before all requests were finished")

func (s *Server) drain(now <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.Drain)
	defer cancel()
	go func() {
		select {
		case <-now:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.public.Shutdown(ctx) // it also waits, for some seconds, for whoever has connected and asked nothing
	_ = s.public.Close()          //nolint:errcheck // what it cuts off is told below
	if err == nil || s.busy.none() {
		err = s.running.wait(ctx) // work whose client was answered before it ended
	}
	if err != nil {
		n := s.running.count()
		s.log.Warn("proxy ends before all requests have; what those with a key were about is unknown when their lease is over", "running", n)
		return fmt.Errorf("%w: %d with a key were still running", ErrNotDrained, n)
	}
	return nil
}

// swept is told of every round of the janitor.
func (s *Server) swept(res everonce.PurgeResult, err error) {
	s.metrics.purged.Add(float64(res.Records))
	if err != nil {
		s.metrics.janitorErrors.Inc()
		s.log.Warn("the janitor failed; it tries again", "error", err)
	}
}

// busy are the clients' connections on which a request is being answered.
type busy struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// note is of [http.Server.ConnState].
func (b *busy) note(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state == http.StateActive {
		b.conns[c] = struct{}{}
	} else {
		delete(b.conns, c)
	}
}

func (b *busy) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns) == 0
}

// running counts operations, from before their claim until they are recorded.
type running struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed while there are none
}

func newRunning() *running {
	r := &running{none: make(chan struct{})}
	close(r.none)
	return r
}

// Start is of everonce.Observer.
func (r *running) Start(ctx context.Context, _ everonce.Op) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.none = make(chan struct{})
	}
	return ctx
}

// End is of everonce.Observer.
func (r *running) End(context.Context, everonce.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		close(r.none)
	}
}

func (r *running) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// wait returns when there are none, or with the context's error: where there are none, nil, though the context has ended too.
func (r *running) wait(ctx context.Context) error {
	r.mu.Lock()
	none := r.none
	r.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
		if r.count() > 0 {
			return ctx.Err()
		}
	}
	return nil
}
