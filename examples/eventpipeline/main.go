// Command eventpipeline sends events through RabbitMQ to MongoDB, and does to the pipeline what production does: its
// producer sends duplicates, its workers are killed between the insert and the acknowledgement, the broker is killed
// and started again, the database goes away. Then it audits the documents: each valid event has one document, and every
// other event is a dead letter.
//
// With -with inbox the workers take messages into an inbox in PostgreSQL, and handle them afterwards; with -with outbox
// they publish to an outbox there, whose relay sends on to MongoDB. The counts are the same.
//
// With -broken it makes one of the usual mistakes, and counts what that costs.
//
// It starts its own broker and database, by the project's scripts/services. EVENTPIPELINE_RABBITMQ_URL and
// EVENTPIPELINE_MONGODB_URL, and for -with EVENTPIPELINE_POSTGRES_URL, name others; then -restart-broker is the command
// that restarts the broker.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		if err := runWorker(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := program(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	if err != nil {
		log.Print(err)
	}
	os.Exit(code) //nolint:gocritic // the signals are the process's
}

// program is main without the process. Its code is 0 only if nothing is lost or doubled, and no valid event is left
// among the dead letters.
func program(ctx context.Context, args []string, getenv func(string) string, out, said io.Writer) (code int, err error) {
	s := settings{Log: log.New(said, "", 0), Said: io.Discard}
	flags := flag.NewFlagSet("eventpipeline", flag.ContinueOnError)
	flags.SetOutput(said)
	flags.IntVar(&s.Events, "n", 1000, "how many `events`")
	flags.IntVar(&s.Workers, "workers", 2, "how many worker processes")
	flags.IntVar(&s.Kills, "kills", 20, "how often a worker is killed")
	flags.DurationVar(&s.Away, "away", 3*time.Second, "how long MongoDB is away")
	flags.BoolVar(&s.RestartBroker, "restart", true, "kill the broker in mid-stream, and start it again")
	flags.Var(&s.With, "with", "the `table` in PostgreSQL that stands between the broker and MongoDB: inbox, outbox")
	flags.Var(&s.Broken, "broken", "the `mistake` that it is built with: "+s.Broken.all())
	within := flags.Duration("within", 5*time.Minute, "give up after so long")
	restart := flags.String("restart-broker", "", "the `command` that restarts a broker that was not started here")
	asJSON := flags.Bool("json", false, "print the report as one JSON object")
	verbose := flags.Bool("v", false, "show what the workers log")
	if err := flags.Parse(args); err != nil {
		return 2, nil //nolint:nilerr // flags has said it
	}
	if flags.NArg() > 0 || s.Events < 1 || s.Workers < 1 || s.Kills < 0 || s.Away < 0 {
		return 2, errors.New("-n and -workers must be positive, -kills and -away not negative, and there are no arguments")
	}
	if s.With != "" && s.Broken != none {
		return 2, errors.New("-with and -broken do not go together")
	}
	if *verbose {
		s.Said = said
	}
	if s.RestartBroker && *restart == "" && getenv(rabbitVariable) != "" {
		return 2, fmt.Errorf("the broker that %s names is to be restarted: say how by -restart-broker, or do without by -restart=false", rabbitVariable)
	}
	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()
	servers, err := openServers(ctx, getenv, *restart, s.With != "")
	if err != nil {
		return 1, err
	}
	defer func() {
		if downErr := servers.down(); downErr != nil {
			code, err = 1, errors.Join(err, downErr)
		}
	}()
	rep, err := pipeline(ctx, servers, s)
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

// clean: each valid event has one document, and each other is a dead letter.
func (r *Report) clean() bool {
	return r.Lost == 0 && r.Doubled == 0 && r.Stranded == 0 && r.Documents+r.DeadLettered == r.Distinct
}

func (r *Report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintf(out, "%d messages of %d events, delivered %d times; workers killed %d times, the broker %d times\n"+
		"%d documents, %d dead letters without one, %d of them valid; %d duplicates absorbed; %d lost, %d doubled\n",
		r.Published, r.Distinct, r.Deliveries, r.Kills, r.BrokerRestarts, r.Documents, r.DeadLettered, r.Stranded, r.DuplicatesAbsorbed, r.Lost, r.Doubled)
	return err
}
