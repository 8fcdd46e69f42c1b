package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/saga"
)

// serviceFlag makes the program a service: it is how the program runs itself again.
const serviceFlag = "-service"

// serviceSettings are the settings of a service, the first line of its input.
type serviceSettings struct {
	Name     string            // "order", or a participant's name
	Addr     string            // where to listen
	Database string            // its file, or its URL
	Addrs    map[string]string // of the participants
	Seed     uint64
	Broken   mistake
}

// runService serves until its input ends, as it does when the program is gone, or until it is told to end by a signal.
// Its first line of output is where it listens.
func runService(in io.Reader, out io.Writer) (err error) {
	var t serviceSettings
	dec := json.NewDecoder(in)
	if err := dec.Decode(&t); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		io.Copy(io.Discard, in) //nolint:errcheck // wait for its end
	}()
	var handler http.Handler
	var working sync.WaitGroup
	defer working.Wait()
	if t.Name == "order" {
		d, err := openDatabase(ctx, t.Database, []string{orderTable})
		if err != nil {
			return err
		}
		defer func() { working.Wait(); err = errors.Join(err, d.close()) }()
		to, err := newServices(t.Addrs)
		if err != nil {
			return err
		}
		s, err := newOrders(ctx, d, to)
		if err != nil {
			return err
		}
		working.Go(func() {
			defer cancel()
			if err := s.runner.Run(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
		handler = s
	} else {
		d, err := openDatabase(ctx, t.Database, works[t.Name].tables)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close()) }()
		p := &participant{database: d, work: works[t.Name]}
		if t.Broken != noBarrier {
			if p.half, err = saga.NewParticipant[*sql.Tx](d.receiver, t.Name, everonce.Lifetime{}); err != nil {
				return err
			}
		}
		handler = unreliable(p, rand.New(rand.NewPCG(t.Seed, 2))) //nolint:gosec // faults
	}
	return serve(ctx, t.Addr, handler, out)
}

// serve serves until ctx ends.
func serve(ctx context.Context, addr string, h http.Handler, out io.Writer) error {
	ln, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return errors.Join(err, srv.Close())
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}

// listen opens a port of this machine: any, or one that was announced before. It waits for one that is taken: it may
// have become the near end of somebody's short connection.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
