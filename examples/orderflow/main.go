// Command orderflow fulfils orders as sagas over four services, each a process with its own database: order, which owns
// the sagas, stock, payment and shipping. Some orders are refused, some answers get lost or arrive too late, and
// processes are killed at random (SIGKILL) and started again. Then it reads the four databases and counts: each order
// was either reserved, charged and shipped, each once, or all that was done for it was reverted, once.
//
// The databases are SQLite files in a temporary folder, or schemas of a PostgreSQL server, by -postgres.
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
	if len(os.Args) == 2 && os.Args[1] == serviceFlag {
		if err := runService(os.Stdin, os.Stdout); err != nil {
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

// perform is main without the process. Its code is 0 only if each order was fulfilled once, or taken back.
func perform(ctx context.Context, args []string, out, said io.Writer) (code int, err error) {
	s := settings{Log: log.New(said, "", 0), Said: io.Discard}
	flags := flag.NewFlagSet("orderflow", flag.ContinueOnError)
	flags.SetOutput(said)
	flags.IntVar(&s.Orders, "n", 200, "how many `orders`")
	flags.IntVar(&s.Kills, "kills", 20, "how often a process is killed")
	flags.Uint64Var(&s.Seed, "seed", 0, "chooses orders, victims and faults; 0 is any")
	flags.StringVar(&s.Postgres, "postgres", "", "the `URL` of a PostgreSQL server, instead of SQLite")
	flags.Var(&s.Broken, "broken", "the `mistake` that the services are built with: "+string(noBarrier))
	within := flags.Duration("within", 5*time.Minute, "give up after so long")
	asJSON := flags.Bool("json", false, "print the report as one JSON object")
	verbose := flags.Bool("v", false, "show what the services log")
	if err := flags.Parse(args); err != nil {
		return 2, nil //nolint:nilerr // flags has said it
	}
	if flags.NArg() > 0 || s.Orders < 1 || s.Kills < 0 {
		return 2, errors.New("-n must be positive, -kills not negative, and there are no arguments")
	}
	if *verbose {
		s.Said = said
	}
	if s.Seed == 0 {
		s.Seed = rand.Uint64() //nolint:gosec // any
	}
	s.Log.Printf("the seed is %d", s.Seed)
	ctx, cancel := context.WithTimeoutCause(ctx, *within, fmt.Errorf("the sagas have not ended within %v", *within))
	defer cancel()
	rep, err := orderflow(ctx, s)
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

// clean: nothing was done twice or by halves, and every order has ended.
func (r *Report) clean() bool {
	return r.Doubled == 0 && r.HalfDone == 0 && r.Shipped+r.Compensated == r.Orders
}

func (r *Report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintf(out, "%d orders in %.1f s, while processes were killed %d times: %d shipped, %d compensated; %d effects doubled, %d orders half done\n",
		r.Orders, r.Seconds, r.Kills, r.Shipped, r.Compensated, r.Doubled, r.HalfDone)
	return err
}
