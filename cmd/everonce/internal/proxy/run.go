package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/janitor"
)

// Run serves until ctx ends, and then drains: it takes no new requests and tells so at /readyz, lets those that run end
// and be recorded, and closes the store. It returns nil when all of that was done; [ErrNotDrained] when its time was
// over, or now ended, before that. A Server runs once.
func (s *Server) Run(ctx context.Context, now <-chan struct{}) error {
	sweeping, stopSweeping := context.WithCancel(context.Background())
	maintained, err := s.maintain(sweeping)
	if err != nil {
		stopSweeping()
		return errors.Join(err, s.close())
	}
	failed := make(chan error, 2)
	serve := func(srv *http.Server, ln net.Listener) {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	working, giveUp := context.WithCancel(context.Background())
	s.public.BaseContext = func(net.Listener) context.Context { return working }
	if s.conf.Store == storeurl.Memory {
		s.log.Warn("THE RECORDS ARE IN MEMORY, and are lost when this process ends: repetitions after a restart run AGAIN. Use a durable store for anything but a trial", "store", s.conf.Store)
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
	s.log.Info("proxy drains", "running", s.running.state().running)
	err = s.drain(now)
	giveUp()
	stopSweeping()
	maintained()
	if s.private != nil {
		_ = s.private.Close() //nolint:errcheck // its clients need no answer
	}
	err = errors.Join(broke, err, s.close())
	if err == nil {
		s.log.Info("proxy has ended")
	}
	return err
}

// maintain purges and counts records until ctx ends, and returns a function that waits for both to stop. It does
// neither on a store that charges for reading all records each time.
func (s *Server) maintain(ctx context.Context) (wait func(), err error) {
	if storeurl.Scans(s.conf.Store) {
		s.log.Info("records are neither purged nor counted: that would read the whole store each time")
		return func() {}, nil
	}
	j, err := janitor.New(s.store, &janitor.Options{Report: s.recordSweep})
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = j.Run(ctx) }) //nolint:errcheck // nil when ctx ends
	running.Go(func() { s.census(ctx) })
	return running.Wait, nil
}

// ErrNotDrained reports that running requests were given up. Their outcome is unknown when their lease is over.
var ErrNotDrained = errors.New("ended before all requests had finished")

func (s *Server) drain(now <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.DrainTimeout)
	defer cancel()
	go func() {
		select {
		case <-now:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.public.Shutdown(ctx) // it also waits some seconds for connections without a request
	before := s.serving.state()
	_ = s.public.Close() //nolint:errcheck // the error below reports cut requests
	if after := s.serving.state(); err == nil || before.running == 0 && after.begun == before.begun {
		err = s.running.wait(ctx) // work whose client was answered before it ended
	}
	if err != nil {
		n := s.running.state().running
		s.log.Warn("proxy ends before all requests have ended; those with a key become unknown when their lease ends", "running", n)
		return fmt.Errorf("%w: %d with a key were still running", ErrNotDrained, n)
	}
	return nil
}

// recordSweep records the result of a janitor round.
func (s *Server) recordSweep(res driver.PurgeResult, err error) {
	s.metrics.Purged(res, err)
	if err != nil {
		s.log.Warn("the janitor failed; it tries again", "error", err)
	}
}
