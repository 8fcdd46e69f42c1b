// Command raftbank is a bank on three nodes, each a process with its own files: a state machine on hashicorp/raft,
// whose transfers take effect once by package raftonce. Tellers transfer money and read balances, while nodes, mostly
// the leader, are killed (SIGKILL) and started again, paused (SIGSTOP), and cut off from the others, and while answers
// get lost. Then it audits: the sum of the money, each transfer once, the replicas equal, and whether any order
// explains what the tellers saw.
//
// With -broken it is built with one of the usual mistakes, and counts what that costs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == nodeFlag {
		if err := runNode(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := perform(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		log.Print(err)
	}
	os.Exit(code) //nolint:gocritic // the signals are the process's
}

// perform is main without the process. Its code is 0 only if nothing is doubled or lost, and the history is
// linearizable.
func perform(ctx context.Context, args []string, out, said io.Writer) (code int, err error) {
	s := settings{Log: log.New(said, "", 0), Said: io.Discard}
	flags := flag.NewFlagSet("raftbank", flag.ContinueOnError)
	flags.SetOutput(said)
	flags.IntVar(&s.Transfers, "n", 2000, "how many `transfers`")
	flags.IntVar(&s.Tellers, "clients", 4, "how many `clients`, each with a session and four transfers under way")
	flags.IntVar(&s.Faults, "faults", 12, "how often something is done to a node")
	flags.Uint64Var(&s.Seed, "seed", 0, "chooses transfers, faults and victims; 0 is any")
	flags.Var(&s.Broken, "broken", "the `mistake` that it is built with: "+s.Broken.all())
	within := flags.Duration("within", 5*time.Minute, "give up after so long")
	asJSON := flags.Bool("json", false, "print the report as one JSON object")
	verbose := flags.Bool("v", false, "show what is done to nodes, and what they log")
	if err := flags.Parse(args); err != nil {
		return 2, nil //nolint:nilerr // flags has said it
	}
	if flags.NArg() > 0 || s.Transfers < 1 || s.Tellers < 1 || s.Faults < 0 {
		return 2, errors.New("-n and -clients must be positive, -faults not negative, and there are no arguments")
	}
	if *verbose {
		s.Said = said
	}
	if s.Seed == 0 {
		s.Seed = rand.Uint64() //nolint:gosec // any
	}
	s.Log.Printf("the seed is %d", s.Seed)
	ctx, cancel := context.WithTimeoutCause(ctx, *within, fmt.Errorf("it has not ended within %v", *within))
	defer cancel()
	rep, err := raftbank(ctx, s)
	if err != nil {
		return 1, err
	}
	if err := rep.print(out, *asJSON); err != nil {
		return 1, err
	}
	if !rep.clean() {
		return 1, nil
	}
	return 0, nil
}

func (r *Report) clean() bool { return r.Doubled == 0 && r.Lost == 0 && r.Linearizable }

func (r *Report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	not := map[bool]string{false: "not "}
	_, err := fmt.Fprintf(out, "%d transfers in %.1f s, %d leader changes, %d kills, %d retries; %d doubled, %d lost; the history is %slinearizable\n",
		r.Transfers, r.Seconds, r.LeaderChanges, r.Kills, r.Retries, r.Doubled, r.Lost, not[r.Linearizable])
	return err
}
