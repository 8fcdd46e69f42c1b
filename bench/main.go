// Command bench prints one table of ratios, measured in one run: bare work, ours, and the naive way (check,
// then insert), for each store, mode and way.
//
// The ways of a contest take turns in short rounds, so that other load on the machine affects all of them; a ratio is
// the median over the rounds of that round's ratio. Do not compare figures of two runs; compare ratios.
//
//	bench [-only memory,http,sqlite,proxy,redis,postgres,patterns,sessions,mariadb,mongodb,dynamodb,rabbitmq,kafka,nats,sqs] [-rounds N] [-round DURATION]
//		[-held DURATION] [-delivered ROWS] [-requests N] [-dir FOLDER] [-profile FILE] [-enforce]
//
// Inbox and outbox (patterns) are measured on PostgreSQL; "held" and "flat" measure a relay beside an old snapshot, and
// one on a table with many delivered rows; "growth" measures what is kept of many requests, by keys and by sessions.
// They take minutes, and must be asked for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

func main() {
	// PostgreSQL is behind what waits for the disk too: its checkpoint and vacuum go on when its turns are over.
	only := flag.String("only", "memory,http,sqlite,proxy,redis,postgres,patterns,sessions,mariadb,mongodb,dynamodb,rabbitmq,kafka,nats,sqs", "the `STORES` to measure, and what stands on them")
	rounds := flag.Int("rounds", 7, "how often the ways of a contest take turns")
	round := flag.Duration("round", 500*time.Millisecond, "how long a turn is")
	held := flag.Duration("held", time.Minute, "how long a relay is measured beside an old snapshot, and before it, with -only held")
	delivered := flag.Int("delivered", 1_000_000, "how many delivered `ROWS` the largest table has, with -only flat")
	requests := flag.Int("requests", 1_000_000, "how many `REQUESTS` are kept, with -only growth")
	dir := flag.String("dir", "", "a `FOLDER` on the disk to measure; default: a new one in the system's place for temporary files")
	profile := flag.String("profile", "", "write a profile of the processor's time to `FILE`")
	enforce := flag.Bool("enforce", false, "fail if a figure is below 90 % of its target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := profiled(*profile, func() error {
		return run(ctx, strings.Split(*only, ","), pace{*rounds, *round, *held, *delivered, *requests}, *dir, *enforce)
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// profiled runs fn, and writes where the processor's time went to a file, if one is named.
func profiled(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

func run(ctx context.Context, only []string, p pace, dir string, enforce bool) error {
	if p.rounds < 1 || p.round <= 0 {
		return errors.New("-rounds and -round must be positive")
	}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "everonce-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
	}
	sync, err := syncTime(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %d processors, %s/%s; fsync of %d bytes in %s: p50 %v\n\n",
		runtime.Version(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, syncBytes, dir, sync.Round(time.Microsecond))
	printHead()
	var all []target
	for _, name := range only {
		contests, done, err := open(ctx, name, dir)
		if err != nil {
			return err
		}
		for _, c := range contests {
			if err = c.run(ctx, p); err != nil {
				err = fmt.Errorf("%s: %w", c.name(), err)
				break
			}
			c.print()
			all = append(all, c.promised()...)
		}
		err = errors.Join(err, done())
		if err != nil {
			return err
		}
	}
	missed := printTargets(all)
	if enforce && missed > 0 {
		return fmt.Errorf("%d figures are below 90 %% of their targets", missed)
	}
	return nil
}

// measured is a part of the table.
type measured interface {
	name() string
	run(ctx context.Context, p pace) error
	print()
	promised() []target
}

// open prepares what is measured of a store, or of HTTP.
func open(ctx context.Context, name, dir string) (all []measured, done func() error, err error) {
	var contests []*contest
	done = func() error { return nil }
	switch name {
	case "memory":
		contests = memory()
	case "sqlite":
		contests, done, err = sqlite(ctx, dir)
	case "postgres":
		contests, done, err = postgres(ctx)
	case "patterns":
		contests, all, done, err = patterns(ctx)
	case "sessions":
		contests, done, err = sessions(ctx, dir)
	case "growth":
		all, done, err = openGrowth(ctx, dir)
	case "held", "flat":
		all, done, err = longPatterns(ctx, name)
	case "redis":
		contests, done, err = redis(ctx)
	case "mariadb":
		contests, done, err = mariadb(ctx)
	case "mongodb":
		contests, done, err = mongodb(ctx)
	case "dynamodb":
		contests, done, err = dynamoDB(ctx)
	case "rabbitmq", "kafka", "nats", "sqs":
		contests, done, err = consumers(name)(ctx)
	case "http":
		contests = inProcess()
	case "proxy":
		contests, done, err = overLoopback(ctx, dir)
	default:
		err = fmt.Errorf("there is no store %q: memory, http, sqlite, proxy, redis, postgres, patterns, held, flat, sessions, growth, mariadb, mongodb, dynamodb, rabbitmq, kafka, nats, sqs", name)
	}
	for _, c := range slices.Backward(contests) {
		all = slices.Insert(all, 0, measured(c))
	}
	if name == "http" {
		all = append(all, &waiting{})
	}
	return all, done, err
}
