// Package demo runs the demo: a payment service whose network loses messages and whose process is
// killed in mid-work, once with everonce and once without it, and an audit of the ledgers afterwards.
package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/audit"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/network"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/settle"
)

// Width is how many payments the client sends at a time.
const Width = 16

// Lease is how long a payment stays with a process that was killed, before another may take it over.
const Lease = 1500 * time.Millisecond

// Config says what to run.
type Config struct {
	// Operations is how many payments are made in each run, Kills how often the service is killed in each.
	Operations int
	Kills      int
	// Seed makes payments and faults the same again.
	Seed uint64
	// ViaProxy has the proxy keep the records, in front of a service that knows nothing of keys. It is killed too.
	ViaProxy bool
}

// Mode is one of the two builds of the service.
type Mode string

// The modes.
const (
	Without Mode = "without"
	With    Mode = "with"
)

// Result is what both runs came to.
type Result struct {
	Config  Config
	Without Run
	With    Run
	Seconds float64
}

// Run is one run.
type Run struct {
	Mode    Mode
	Count   audit.Count
	Network network.Stats
	// InFlight is, for each kill, how many operations the service was working on.
	InFlight []int
	Settled  settle.Settled
	Seconds  float64
}

// Watcher is told how it goes. Its methods are not called concurrently.
type Watcher interface {
	// Begin is called when a run begins, with all programs up.
	Begin(mode Mode, operations int)
	// Progress is called several times a second: final is how many payments have got their final answer.
	Progress(final, inFlight int, stats network.Stats)
	// Killed is called after a program was killed in the middle of so many operations, and is up again.
	Killed(n, of int, v Victim, inFlight int)
	// Settled is called when the unknown mails were settled.
	Settled(s settle.Settled)
	// End is called when a run has ended and its ledgers were audited.
	End(r *Run)
}

// Do runs the demo. All of its files are in a temporary folder that is gone when Do returns, and so are
// its processes.
func Do(ctx context.Context, cfg Config, w Watcher) (*Result, error) {
	started := time.Now()
	dir, err := os.MkdirTemp("", "everonce-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what cannot be removed is in the temporary folder
	payments := generate(cfg)
	res := &Result{Config: cfg}
	for _, r := range []struct {
		mode Mode
		into *Run
	}{{Without, &res.Without}, {With, &res.With}} {
		s := &scenario{cfg: cfg, mode: r.mode, payments: payments, dir: filepath.Join(dir, string(r.mode)), watcher: w}
		if *r.into, err = s.run(ctx); err != nil {
			return nil, fmt.Errorf("the run %s everonce: %w", r.mode, err)
		}
	}
	res.Seconds = time.Since(started).Seconds()
	return res, nil
}

const accounts = 12

// generate makes the payments.
func generate(cfg Config) []payment.Payment {
	r := rand.New(rand.NewPCG(cfg.Seed, 1)) //nolint:gosec // amounts of a demo
	payments := make([]payment.Payment, cfg.Operations)
	for i := range payments {
		payments[i] = payment.Payment{
			Key:   fmt.Sprintf("payment-%06d", i+1),
			Order: fmt.Sprintf("order-%06d", i+1), Account: fmt.Sprintf("account-%02d", 1+r.IntN(accounts)),
			Amount: 100 + r.Int64N(20_000),
		}
	}
	return payments
}
