package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/audit"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/client"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/network"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/process"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/httponce"
)

// scenario is one run: its programs, its files, and what is done to them.
type scenario struct {
	cfg      Config
	mode     Mode
	payments []payment.Payment
	dir      string
	watcher  Watcher

	gateway *process.Child
	mailer  *gateway.Client // speaks to the gateway as an operator does
	service *process.Child  // the supervisor's, while it runs
	proxy   *process.Child  // the same; nil where there is none
	network *network.Network
	client  *client.Client
	gate    *gate
	kills   chan kill
	result  Run
}

// kill is one that has happened, in the middle of so many operations.
type kill struct {
	victim   Victim
	inFlight int
}

func (s *scenario) books() string { return filepath.Join(s.dir, "payments.db") }
func (s *scenario) mails() string { return filepath.Join(s.dir, "mails.jsonl") }

// records is where the proxy keeps its own: outside of the service's books.
func (s *scenario) records() string { return filepath.Join(s.dir, "proxy.db") }

// limit bounds a run that does not end: it would be a fault of the demo or of everonce, and must be seen.
func (s *scenario) limit() time.Duration {
	return 2*time.Minute + time.Duration(s.cfg.Operations)*50*time.Millisecond + time.Duration(s.cfg.Kills)*5*time.Second
}

func (s *scenario) run(ctx context.Context) (Run, error) {
	started := time.Now()
	s.result.Mode = s.mode
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit(), fmt.Errorf("it has not ended after %v", s.limit()))
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		return s.result, err
	}
	err := s.operate(ctx)
	if err != nil {
		s.kill()
		return s.result, err
	}
	if err := s.stop(); err != nil {
		return s.result, err
	}
	if s.result.Count, err = s.audit(ctx); err != nil {
		return s.result, err
	}
	s.result.Seconds = time.Since(started).Seconds()
	s.watcher.End(&s.result)
	return s.result, nil
}

// prepare makes the books.
func (s *scenario) prepare(ctx context.Context) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	db, err := service.OpenBooks(s.books())
	if err != nil {
		return err
	}
	return errors.Join(service.Create(ctx, db, s.payments), db.Close())
}

// operate starts the programs, and lets the client pay while the service is killed again and again.
func (s *scenario) operate(ctx context.Context) (err error) {
	if s.gateway, err = process.Start(ctx, "the e-mail gateway", GatewayCommand(s.mails())...); err != nil {
		return err
	}
	s.mailer = gateway.NewClient("http://" + s.gateway.Addr())
	s.network = network.New(network.Bad(s.cfg.Seed), keyOf,
		func(h http.Header) bool { return h.Get(payment.ReplayedHeader) != "" })
	if err := s.startService(ctx); err != nil {
		return err
	}
	if s.viaProxy() {
		if err := s.startProxy(ctx); err != nil {
			return err
		}
	}
	ln, err := process.Listen(ctx, process.Anywhere)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.network, ReadHeaderTimeout: time.Minute}
	go server.Serve(ln)  //nolint:errcheck // it ends with Close
	defer server.Close() //nolint:errcheck // nothing is connected any more
	defer s.network.Close()

	if s.client, err = client.New("http://"+ln.Addr().String(), Width); err != nil {
		return err
	}
	s.gate = newGate()
	s.watcher.Begin(s.mode, s.cfg.Operations)
	return s.watched(ctx, s.work)
}

// keyOf names the operation of a request, whichever way its key is spelled.
func keyOf(r *http.Request) string {
	key, err := httponce.ParseKey(r.Header.Get(payment.KeyHeader))
	if err != nil {
		return ""
	}
	return key
}

// watched runs f, and tells the watcher how it goes. It ends f when a program ends that was not killed by us.
func (s *scenario) watched(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.kills = make(chan kill)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	gatewayGone := s.gateway.Done()
	for {
		select {
		case err := <-done:
			s.tellProgress()
			if err == nil && s.result.Settled.Unknown() > 0 {
				s.watcher.Settled(s.result.Settled)
			}
			return err
		case k := <-s.kills:
			s.result.InFlight = append(s.result.InFlight, k.inFlight)
			s.watcher.Killed(len(s.result.InFlight), s.cfg.Kills, k.victim, k.inFlight)
		case <-tick.C:
			s.tellProgress()
		case <-gatewayGone:
			gatewayGone = nil
			cancel(s.gateway.Err())
		}
	}
}

func (s *scenario) tellProgress() {
	s.watcher.Progress(s.client.Counts().Final, s.network.InFlight(), s.network.Stats())
}

func (s *scenario) audit(ctx context.Context) (audit.Count, error) {
	if _, err := os.Stat(s.books()); err != nil { // SQLite would say less, or begin new books
		return audit.Count{}, fmt.Errorf("the service's database is gone, by nothing that the demo does: %w", err)
	}
	db, err := service.OpenBooks(s.books())
	if err != nil {
		return audit.Count{}, err
	}
	defer db.Close() //nolint:errcheck // it was only read
	return audit.Ledgers(ctx, db, s.mails())
}
