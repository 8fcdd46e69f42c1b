package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// readiness tells whether requests should come here.
type readiness struct {
	store    everonce.Store
	log      *slog.Logger
	draining atomic.Bool

	asking  chan struct{} // holds one while the store is asked, to whom the rest belongs
	begun   time.Time     // when it was asked last
	written time.Time     // when the store has last taken a write that was tried
	why     error         // the last reported reason
}

func newReadiness(store everonce.Store, log *slog.Logger) *readiness {
	return &readiness{store: store, log: log, asking: make(chan struct{}, 1)}
}

const (
	// readyTimeout is how long the store has to answer.
	readyTimeout = 2 * time.Second
	// writeEvery is how long the store is taken to accept writes after one that it took.
	writeEvery = 5 * time.Second
)

// probe is the ID of a record that does not exist.
var probe = everonce.Key{Scope: everonce.ScopeOf("everonce", "proxy", "readiness"), ID: "probe"}.RecordID()

// The reasons not to send requests here. The store's own error is only logged.
var (
	errDraining    = errors.New("draining")
	errUnreachable = errors.New("the store cannot be reached")
	errNoWrites    = errors.New("the store accepts no writes")
)

// check queries the store to the end, or until its time is over, even if the caller leaves sooner: the log should say
// why the proxy is not ready. Concurrent callers wait, and a query that began after they arrived answers them too.
func (s *readiness) check(ctx context.Context) error {
	if s.draining.Load() {
		return errDraining
	}
	came := time.Now()
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.begun.After(came) {
		return s.why
	}
	s.begun = time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	why, said := s.ask(ctx)
	if s.draining.Load() { // the store may have been closed meanwhile
		return errDraining
	}
	switch changed := !errors.Is(why, s.why); {
	case changed && why != nil:
		s.log.Error("not ready: "+why.Error()+": requests with a new key fail", "error", said)
	case changed:
		s.log.Info("ready again: the store accepts writes")
	}
	s.why = why
	return why
}

// ask reads, and tries a write now and then, and after one that was not taken each time. said is what the store says.
func (s *readiness) ask(ctx context.Context) (why, said error) {
	if _, err := s.store.Get(ctx, driver.GetRequest{ID: probe, Brief: true}); err != nil {
		return errUnreachable, err
	}
	store, ok := driver.PowerOf[driver.WriteChecker](s.store)
	if !ok || s.why == nil && !s.written.IsZero() && time.Since(s.written) < writeEvery {
		return nil, nil
	}
	if _, err := store.CheckWrite(ctx, driver.CheckWriteRequest{}); err != nil {
		return errNoWrites, err
	}
	s.written = time.Now()
	return nil, nil
}
