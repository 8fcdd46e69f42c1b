package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/view"
)

const demoLong = `demo runs two processes: a payment service on a SQLite file, and an e-mail gateway. A
client pays, 16 payments at a time, over a network that loses a quarter of all requests
and a quarter of all answers, delays some and delivers some twice; it sends each payment
until it has a final answer. Meanwhile the service is killed (SIGKILL) in the middle of
its work, and started again.

All this happens twice, without everonce and with it. Then demo counts the charges and
the e-mails in the ledgers themselves: the service's database and the gateway's file.

Everything listens on 127.0.0.1 only, and all files are in a temporary folder that is
removed at the end.

The service uses everonce's HTTP middleware, and the client its transport. With
--via proxy the service knows nothing of keys: the server of "everonce proxy" stands in
front of it as a process of its own, and the kills take turns: the service, the proxy,
both.

With --json, progress goes to standard error, and standard output is one object. In it,
operations and kills are per run; deliveries and losses are the network's counts over
both runs; effects, doubled and lost are charges; mails_unknown counts those that were
unknown before they were settled.

demo fails (1) unless, with everonce, no charge is doubled or lost and no e-mail doubled,
and, without everonce, some charge is doubled.`

// The defaults of the demo.
const (
	demoOperations = 300
	demoKills      = 5
	maxOperations  = 100_000
)

// viaProxy is a value of --via.
const viaProxy = "proxy"

// demo shows what everonce is for.
func (a *app) demo() *cobra.Command {
	cfg := demo.Config{}
	var asJSON bool
	var via string
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Kill a payment service in the middle of its work, and count the charges",
		Long:    demoLong,
		Example: "  everonce demo\n  everonce demo --via proxy\n  everonce demo --operations 1000 --kills 10\n  everonce demo --json --seed 7 | jq .with",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(&cfg); err != nil {
				return err
			}
			if via != "" && via != viaProxy {
				return usagef("--via is %q, must be %s", via, viaProxy)
			}
			cfg.ViaProxy = via == viaProxy
			if !cmd.Flags().Changed("seed") {
				cfg.Seed = uint64(rand.Uint32()) //nolint:gosec // the seed of a demo
			}
			return a.runDemo(cmd, cfg, asJSON)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Operations, "operations", demoOperations, "payments in each run")
	f.IntVar(&cfg.Kills, "kills", demoKills, "how often the service is killed in each run")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of the payments and the network's faults (default: a new one, which is printed)")
	f.StringVar(&via, "via", "", "what handles the keys in the run with everonce: proxy, in front of a service that knows nothing of keys (default: the service's own middleware)")
	complete(cmd, "via", viaProxy)
	f.BoolVar(&asJSON, "json", false, "write the result as one JSON object")
	return cmd
}

func checkDemo(cfg *demo.Config) error {
	switch {
	case cfg.Operations < 1 || cfg.Operations > maxOperations:
		return usagef("--operations is %d, must be from 1 to %d", cfg.Operations, maxOperations)
	case cfg.Kills < 0:
		return usagef("--kills is %d, must not be negative", cfg.Kills)
	case 2*cfg.Kills > cfg.Operations:
		return usagef("--kills is %d, must be at most half of --operations (%d): each kill must find work to interrupt", cfg.Kills, cfg.Operations)
	}
	return nil
}

func (a *app) runDemo(cmd *cobra.Command, cfg demo.Config, asJSON bool) error {
	progress := a.out
	if asJSON {
		progress = a.err
	}
	fmt.Fprintf(progress, "%d payments, %d kills in each run, seed %d\n", cfg.Operations, cfg.Kills, cfg.Seed)
	var v view.View = view.NewLines(progress, cfg.ViaProxy)
	if isTerminal(progress) {
		v = view.NewLive(progress, cfg.ViaProxy)
	}
	res, err := demo.Do(cmd.Context(), cfg, v)
	if err != nil {
		v.Abort()
		return err
	}
	if asJSON {
		err = json.NewEncoder(a.out).Encode(res.Report())
	} else {
		err = view.Table(a.out, res)
	}
	if err != nil {
		return err
	}
	return res.Verdict()
}

// isTerminal reports whether somebody is at the other end of an input or an output.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
