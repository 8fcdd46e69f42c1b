// Package demo shows what everonce is for: a payment service whose network loses messages and whose process is
// killed in the middle of its work, once with everonce and once without, and an audit of the ledgers afterwards.
//
// It links the core and SQLite only. `make demo` and `everonce demo` run it.
package demo

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/everonce/everonce/demo/internal/shop"
)

// Short says in a line what the demo does, and Long at length.
const (
	Short = "Kill a payment service in the middle of its work, and count the charges"
	Long  = `demo runs two processes: a payment service on a SQLite file, and an e-mail gateway. A
client pays, 16 payments at a time, over a network that loses a quarter of all requests
and a quarter of all answers, delays some and delivers some twice; it sends each payment
until it has a final answer. Meanwhile the service is killed (SIGKILL) in the middle of
its work, and started again.

All this happens twice, without everonce and with it. Then demo counts the charges and
the e-mails in the ledgers themselves: the service's database and the gateway's file.

Everything listens on 127.0.0.1 only, and all files are in a temporary folder that is
removed at the end.

The service uses everonce's HTTP middleware, and the client its transport. With
--via proxy the service knows no idempotency keys: everonce's proxy stands in front of it
in a separate process, and the kills take turns: the service, the proxy, both.

With --json, progress goes to standard error, and standard output is one object. In it,
operations and kills are per run; deliveries and losses are the network's counts over
both runs; effects, doubled and lost are charges; mails_unknown counts those that were
unknown before they were settled.

demo fails (1) unless, with everonce, no charge is doubled or lost and no e-mail doubled,
and, without everonce, some charge is doubled.`
)

// ViaProxy is a value of [Config.Via].
const ViaProxy = "proxy"

// maxOperations bounds a run.
const maxOperations = 100_000

// Config says what to run.
type Config struct {
	// Operations is how many payments are made in each run, Kills how often the service is killed in each.
	Operations int
	Kills      int
	// Seed makes payments and faults the same again. 0 is a new one.
	Seed uint64
	// Via is what handles the keys in the run with everonce: the service's own middleware (""), or [ViaProxy].
	Via string
	// JSON asks for the result as one JSON object.
	JSON bool
}

// Flags returns the flags of the program, which set the Config.
func (c *Config) Flags() *flag.FlagSet {
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.IntVar(&c.Operations, "operations", 300, "payments in each run")
	f.IntVar(&c.Kills, "kills", 5, "how often the service is killed in each run")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of the payments and the network's faults (default: a new one, which is printed)")
	f.StringVar(&c.Via, "via", "", "what handles the keys in the run with everonce: proxy, in front of a service without keys (default: the service's own middleware)")
	f.BoolVar(&c.JSON, "json", false, "write the result as one JSON object")
	return f
}

// Check returns what is wrong with the flags.
func (c *Config) Check() error {
	switch {
	case c.Operations < 1 || c.Operations > maxOperations:
		return fmt.Errorf("--operations is %d, must be from 1 to %d", c.Operations, maxOperations)
	case c.Kills < 0:
		return fmt.Errorf("--kills is %d, must not be negative", c.Kills)
	case 2*c.Kills > c.Operations:
		return fmt.Errorf("--kills is %d, must be at most half of --operations (%d): each kill must find work to interrupt", c.Kills, c.Operations)
	case c.Via != "" && c.Via != ViaProxy:
		return fmt.Errorf("--via is %q, must be %s", c.Via, ViaProxy)
	}
	return nil
}

// Run runs the demo, and writes its progress and its result. The error says what the ledgers show, if it is not what
// the demo promises. All of its files are in a temporary folder that is gone when Run returns, and so are its
// processes: the program itself, which must call [Serve] when its first argument is [ChildCommand].
func Run(ctx context.Context, c Config, out, errOut io.Writer) error {
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32()) //nolint:gosec // the seed of a demo
	}
	progress := out
	if c.JSON {
		progress = errOut
	}
	fmt.Fprintf(progress, "%d payments, %d kills in each run, seed %d\n", c.Operations, c.Kills, c.Seed)
	v := newView(progress, c.Via == ViaProxy)
	res, err := both(ctx, c, v)
	if err != nil {
		v.abort()
		return err
	}
	if c.JSON {
		err = json.NewEncoder(out).Encode(res.report())
	} else {
		err = res.table(out)
	}
	if err != nil {
		return err
	}
	return res.verdict()
}

// mode is one of the two runs.
type mode string

const (
	without mode = "without"
	with    mode = "with"
)

// result is what both runs came to.
type result struct {
	config        Config
	without, with outcome
	seconds       float64
}

func both(ctx context.Context, c Config, v *view) (*result, error) {
	started := time.Now()
	dir, err := os.MkdirTemp("", "everonce-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what cannot be removed is in the temporary folder
	res := &result{config: c}
	payments := generate(c)
	for _, m := range []mode{without, with} {
		r := &run{config: c, mode: m, payments: payments, dir: filepath.Join(dir, string(m)), view: v}
		if err := r.do(ctx); err != nil {
			return nil, fmt.Errorf("the run %s everonce: %w", m, err)
		}
		res.without, res.with = res.with, r.outcome
	}
	res.seconds = time.Since(started).Seconds()
	return res, nil
}

const accounts = 12

// generate makes the payments.
func generate(c Config) []shop.Payment {
	r := rand.New(rand.NewPCG(c.Seed, 1)) //nolint:gosec // amounts of a demo
	payments := make([]shop.Payment, c.Operations)
	for i := range payments {
		payments[i] = shop.Payment{
			Key:   fmt.Sprintf("payment-%06d", i+1),
			Order: fmt.Sprintf("order-%06d", i+1), Account: fmt.Sprintf("account-%02d", 1+r.IntN(accounts)),
			Amount: 100 + r.Int64N(20_000),
		}
	}
	return payments
}
