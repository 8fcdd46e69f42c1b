package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/everonce/everonce/demo/internal/client"
	"github.com/everonce/everonce/demo/internal/network"
	"github.com/everonce/everonce/demo/internal/process"
	"github.com/everonce/everonce/demo/internal/shop"
	"github.com/everonce/everonce/httponce"
)

// width is how many payments the client sends at a time.
const width = 16

// run is one run: its programs, its files, and what is done to them.
type run struct {
	config   Config
	mode     mode
	payments []shop.Payment
	dir      string
	view     *view
	fail     func(error) // ends the run, unless the error is nil

	gateway, service *process.Child
	proxy            *process.Child // nil: none
	network          *network.Network
	client           *client.Client
	queue            chan shop.Payment // those that the client may begin
	queued           int
	outcome          outcome
}

// outcome is what a run came to.
type outcome struct {
	count   shop.Count
	network network.Stats
	// inFlight is, for each kill, how many operations the service was working on.
	inFlight []int
	settled  settled
	seconds  float64
}

// viaProxy reports whether this run's records are the proxy's.
func (r *run) viaProxy() bool { return r.config.Via == ViaProxy && r.mode == with }

func (r *run) books() string { return filepath.Join(r.dir, "payments.db") }
func (r *run) mails() string { return filepath.Join(r.dir, "mails.jsonl") }

// records is where everonce keeps its records: the proxy keeps them outside of the service's books.
func (r *run) records() string {
	if r.viaProxy() {
		return filepath.Join(r.dir, "proxy.db")
	}
	return r.books()
}

// limit bounds a run that does not end: it would be a fault of the demo or of everonce, and must be seen.
func (r *run) limit() time.Duration {
	return 2*time.Minute + time.Duration(r.config.Operations)*50*time.Millisecond + time.Duration(r.config.Kills)*5*time.Second
}

func (r *run) do(ctx context.Context) error {
	started := time.Now()
	ctx, done := context.WithTimeoutCause(ctx, r.limit(), fmt.Errorf("it has not ended after %v", r.limit()))
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.fail = func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	if err := r.createBooks(ctx); err != nil {
		return err
	}
	if err := r.operate(ctx); err != nil {
		r.end((*process.Child).Kill)
		return err
	}
	r.end((*process.Child).Stop)
	r.outcome.network = r.network.Stats()
	if err := r.audit(ctx); err != nil {
		return err
	}
	r.outcome.seconds = time.Since(started).Seconds()
	r.view.end(&r.outcome)
	return nil
}

func (r *run) createBooks(ctx context.Context) error {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	db, err := shop.OpenBooks(r.books())
	if err != nil {
		return err
	}
	return errors.Join(shop.Create(ctx, db, r.payments), db.Close())
}

// operate starts the programs, and lets the client pay while the service is killed again and again.
func (r *run) operate(ctx context.Context) (err error) {
	r.network = network.New(network.Bad(r.config.Seed), keyOf,
		func(h http.Header) bool { return h.Get(client.ReplayedHeader) != "" })
	if r.gateway, err = r.start(ctx, roleGateway, r.mails(), nil, nil); err == nil {
		err = r.startService(ctx)
	}
	if err == nil {
		err = r.startProxy(ctx)
	}
	if err != nil {
		return err
	}
	ln, err := process.Listen(ctx, process.Anywhere)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: r.network, ReadHeaderTimeout: time.Minute}
	go server.Serve(ln) //nolint:errcheck // it ends with Shutdown
	defer func() {
		err = errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)))
		r.network.Wait()
	}()
	if r.client, err = client.New("http://"+ln.Addr().String(), width); err != nil {
		return err
	}
	r.queue = make(chan shop.Payment, len(r.payments))
	r.view.begin(r.mode, r.config.Operations)
	return r.work(ctx)
}

// keyOf names the operation of a request.
func keyOf(r *http.Request) string {
	key, err := httponce.ParseKey(r.Header.Get("Idempotency-Key"))
	if err != nil {
		return ""
	}
	return key
}

// startService starts the service, and connects it to the network. Behind the proxy it starts the service without
// everonce. After a kill it listens at the same address, because the proxy is configured with it.
func (r *run) startService(ctx context.Context) (err error) {
	role := roleWithout
	if r.mode == with && !r.viaProxy() {
		role = roleWith
	}
	r.service, err = r.start(ctx, role, r.books(), r.gateway, r.service)
	if err == nil && !r.viaProxy() {
		r.network.Connect(r.service.Addr())
	}
	return err
}

// startProxy starts the proxy if there is to be one, and connects it to the network.
func (r *run) startProxy(ctx context.Context) (err error) {
	if !r.viaProxy() {
		return nil
	}
	if r.proxy, err = r.start(ctx, roleProxy, r.records(), r.service, nil); err == nil {
		r.network.Connect(r.proxy.Addr())
	}
	return err
}

// end ends all programs, those first that call others.
func (r *run) end(how func(*process.Child)) {
	for _, c := range []*process.Child{r.proxy, r.service, r.gateway} {
		if c != nil {
			how(c)
		}
	}
}

// work lets the client pay everything while the supervisor kills, and tells the view how it goes.
func (r *run) work(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { r.fail(r.supervise(ctx)) })
	workers.Go(func() { r.fail(r.pay(ctx)) })
	over := make(chan struct{})
	go func() { workers.Wait(); close(over) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for working := true; working; {
		select {
		case <-tick.C:
		case <-over:
			working = false
		}
		r.view.progress(r.client.Counts().Final, r.network.InFlight(), r.network.Stats())
	}
	if r.outcome.settled.unknown() > 0 {
		r.view.settled(r.outcome.settled)
	}
	return context.Cause(ctx)
}

// settleRounds bounds how often unknown payments are settled. There are no kills then, so one round is enough unless
// the machine itself is in trouble.
const settleRounds = 5

// pay makes all payments. It then settles the unknown ones, and pays them to the end.
func (r *run) pay(ctx context.Context) error {
	left, err := r.client.Pay(ctx, r.queue)
	for round := 0; err == nil && len(left) > 0; round++ {
		if round == settleRounds {
			return fmt.Errorf("%d payments are still unknown", len(left))
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		again := make(chan shop.Payment, len(left))
		for _, p := range left {
			again <- p
		}
		close(again)
		left, err = r.client.Pay(ctx, again)
	}
	return err
}

func (r *run) audit(ctx context.Context) error {
	if _, err := os.Stat(r.books()); err != nil { // SQLite would say less, or begin new books
		return fmt.Errorf("the service's database is gone, and the demo did not remove it: %w", err)
	}
	db, err := shop.OpenBooks(r.books())
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it was only read
	r.outcome.count, err = shop.Audit(ctx, db, r.mails())
	return err
}
