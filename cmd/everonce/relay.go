package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
)

// toVariable names the environment variable that stands in for --to.
const toVariable = "EVERONCE_TO"

const relayLong = `relay publishes the events of an outbox until SIGTERM comes, then lets what is under way
end, for up to 15 s. Several relays share the work, in services too. An event is published
at least once, by the same ID each time.

--to says where they go; without it, that is taken from ` + toVariable + `, which keeps a
password out of the process list:

  https://…   a webhook: a POST for each event, with its ID as Idempotency-Key, signed if
              --secret-file names a file with a secret (whsec_…) on each line. Addresses
              that are not public are refused, unless --allow-private is given
  amqp://…    RabbitMQ: to the queue that has the topic's name, or to --exchange with the
              topic as routing key
  kafka://…   Kafka: to the topic, with the order key as record key; kafkas://… for TLS
  nats://…    NATS JetStream, or tls://…: to the subject that is the topic
  sqs://…     SQS: sqs://region, or sqs:// for the region of AWS_REGION or the profile: to the
              queue that has the topic's name, FIFO if it ends with .fifo
  stdout      a line of JSON for each: it counts as published when it is written

--health is an address with /healthz (it runs), /readyz (it reaches the table) and /metrics
for Prometheus. The log is on standard error.`

// relayFlags are the flags of relay.
type relayFlags struct {
	to, secretFile, exchange, health string
	allowPrivate                     bool
	skipFailed                       []string
	retention                        time.Duration
	opts                             outbox.RelayOptions
}

// relay publishes the events of an outbox beside a service.
func (a *app) relay(b *backlogFlags) *cobra.Command {
	r := &relayFlags{retention: 24 * time.Hour, opts: outbox.RelayOptions{Lease: 30 * time.Second, Poll: time.Second}}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish the events of an outbox: to a webhook, RabbitMQ, Kafka, NATS, SQS, or to standard output",
		Long:  relayLong,
		Example: "  everonce outbox relay --store sqlite:shop.db --to stdout\n" +
			"  everonce outbox relay --store postgres://localhost/shop --to https://example.com/hooks --secret-file hooks.secret --health 127.0.0.1:9090\n" +
			"  everonce outbox relay --store postgres://localhost/shop --to amqp://localhost --exchange events",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewJSONHandler(printable{a.err}, nil))
			publisher, end, err := r.publisher(a, log)
			if err != nil {
				return err
			}
			defer end() //nolint:errcheck // what was confirmed is published
			b.opts.Works = true
			store, table, err := b.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // what was written is durable
			return r.run(cmd.Context(), log, table, publisher)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&r.to, "to", "", "https://…, amqp://…, amqps://…, kafka://…, kafkas://…, nats://…, tls://…, sqs://… or stdout (default $"+toVariable+")")
	f.StringVar(&r.secretFile, "secret-file", "", "of a webhook: file with the secrets that sign it, one on each line")
	f.BoolVar(&r.allowPrivate, "allow-private", false, "of a webhook: allow addresses that are not public, and http://")
	f.StringVar(&r.exchange, "exchange", "", "of RabbitMQ: the exchange that gets the events, with the topic as routing key (default: the queue of the topic's name)")
	f.IntVar(&r.opts.Batch, "batch", 100, "how many events are claimed and published together")
	f.Var((*duration.Value)(&r.opts.Lease), "lease", "how long a killed relay keeps its events from others")
	f.Var((*duration.Value)(&r.opts.Poll), "poll", "the longest pause between two looks into the table")
	f.BoolVar(&r.opts.NoListen, "no-listen", false, "only poll: where LISTEN cannot work, as through PgBouncer in transaction mode")
	f.Var((*duration.Value)(&r.retention), "retention", "how long published events are kept; 0 removes them at once")
	f.StringSliceVar(&r.skipFailed, "skip-failed", nil, "topics in which events behind one that was set aside go on, with the same order key")
	f.StringVar(&r.health, "health", "", "address for health and metrics, like 127.0.0.1:9090 (default: none)")
	return cmd
}

// publisher returns what --to names, and what ends it.
func (r *relayFlags) publisher(a *app, log *slog.Logger) (p outbox.Publisher, end func() error, err error) {
	if r.to == "" {
		r.to = os.Getenv(toVariable)
	}
	scheme, _, _ := strings.Cut(r.to, "://")
	hook, rabbit := scheme == "https" || scheme == "http", scheme == "amqp" || scheme == "amqps"
	switch {
	case r.to == "":
		return nil, nil, usagef("to where? Give --to https://…, amqp://…, kafka://…, nats://…, sqs://… or stdout, or set %s", toVariable)
	case !hook && (r.secretFile != "" || r.allowPrivate):
		return nil, nil, usagef("--secret-file and --allow-private are for a webhook")
	case !rabbit && r.exchange != "":
		return nil, nil, usagef("--exchange is for RabbitMQ")
	case scheme == "http" && !r.allowPrivate:
		return nil, nil, usagef("--to is http://, which anybody on the way can read: use https://, or --allow-private in your own network")
	case r.to == "stdout":
		return outbox.WriteTo(printable{a.out}), func() error { return nil }, nil
	case hook:
		to := webhook.Endpoint{URL: r.to}
		if r.secretFile != "" {
			text, err := os.ReadFile(r.secretFile)
			if err != nil {
				return nil, nil, fmt.Errorf("--secret-file: %w", err)
			}
			if to.Secrets = strings.Fields(string(text)); len(to.Secrets) == 0 { // nothing would be signed
				return nil, nil, usagef("--secret-file has no secret")
			}
			warnReadable(log, []secretFile{{"secret-file", r.secretFile}})
		}
		p, err := webhook.New(to, &webhook.Options{AllowPrivate: r.allowPrivate})
		return p, func() error { return nil }, err
	case isKafka(r.to):
		return closing(kafkaonce.NewPublisher(r.to, nil))
	case rabbit:
		opts := &rabbitonce.PublisherOptions{Name: "everonce outbox relay, " + whoAmI()}
		if r.exchange != "" {
			opts.Address = func(e *outbox.Event) rabbitonce.Address {
				return rabbitonce.Address{Exchange: r.exchange, RoutingKey: e.Topic}
			}
		}
		return closing(rabbitonce.NewPublisher(r.to, opts))
	case isNATS(r.to):
		return closing(natsonce.NewPublisher(r.to, &natsonce.PublisherOptions{Name: "everonce outbox relay, " + whoAmI(), Log: log}))
	case isSQS(r.to):
		p, err := publisherSQS(r.to)
		return p, func() error { return nil }, err
	}
	return nil, nil, usagef("--to must begin with https://, amqp://, amqps://, kafka://, kafkas://, nats://, tls:// or sqs://, or be stdout")
}

// closing returns a publisher and its end.
func closing[P interface {
	outbox.Publisher
	Close() error
}](p P, err error) (outbox.Publisher, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

// run relays until ctx ends.
func (r *relayFlags) run(ctx context.Context, log *slog.Logger, table *beside, to outbox.Publisher) error {
	figures, err := newRelayFigures(ctx, table.backlog)
	if err != nil {
		return err
	}
	opts := r.opts
	if opts.Retention = r.retention; r.retention == 0 {
		opts.Retention = -1
	}
	opts.Log, opts.Observe = log, figures.Relayed
	opts.SkipFailed = func(topic string) bool { return slices.Contains(r.skipFailed, topic) }
	relay, err := table.relay(to, &opts)
	if err != nil {
		return err
	}
	if r.health == "" {
		log.Info("relay starts")
		return ended(log, relay.Run(ctx))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.health)
	if err != nil {
		return fmt.Errorf("--health: %w", err)
	}
	srv := figures.server()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	log.Info("relay starts", "health", l.Addr().String())
	err = relay.Run(ctx)
	err = errors.Join(err, srv.Close())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return ended(log, err)
}

func ended(log *slog.Logger, err error) error {
	if err == nil {
		log.Info("relay ended")
	}
	return err
}
