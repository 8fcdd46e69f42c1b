package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// brokerVariable names the environment variable that stands in for --broker.
const brokerVariable = "EVERONCE_BROKER"

const dlqLong = `dlq shows the dead letters of a queue, puts them back into their queue, or discards them.

--broker names the broker. Without it, the broker is taken from ` + brokerVariable + `, which keeps
a password out of the process list:

  amqp://…    RabbitMQ: amqp://user:password@host/vhost, or amqps://…
  kafka://…   Kafka: kafka://user:password@host:9092,host:9092?mechanism=scram-sha-512, or
              kafkas://… for TLS; --queue is the topic
  nats://…    NATS JetStream: nats://user:password@host, or tls://…; --queue is the stream,
              whose letters are in the stream of that name with "-dead" appended
  sqs://…     SQS: sqs://region, or sqs:// for the region of AWS_REGION or the profile.
              Credentials and endpoint are where the AWS SDK finds them: AWS_PROFILE,
              AWS_ENDPOINT_URL_SQS, …

--queue is the queue that is consumed. --dead-letters names the queue of its dead letters.
Without it, that is --queue with ".dead" appended; for SQS, the queue of its RedrivePolicy.
Other queues may share it; their letters are left alone. Nothing is declared.

RabbitMQ and SQS cannot show a message without taking it. While a command runs, no other
client sees the letters that it looks at; afterwards they are flagged as redelivered. Nor
does a command see letters that a consumer, or another command, holds at that time. If
other consumers exist, standard error says so, and "consumers" in the JSON is their number.`

// dlq returns the operator's commands for dead letters.
func (a *app) dlq() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Show, replay and discard the dead letters of a queue",
		Long:  dlqLong,
		Example: "  everonce dlq list --broker amqp://localhost --queue orders --reason unknown\n" +
			"  everonce dlq replay --broker amqp://localhost --queue orders --reason exhausted --dry-run",
		Args: aCommand,
		RunE: func(*cobra.Command, []string) error {
			return usagef("dlq needs a command: list, show, replay or discard")
		},
	}
	b := &brokerFlags{}
	f := cmd.PersistentFlags()
	f.StringVar(&b.url, "broker", "", "amqp://…, amqps://…, kafka://…, kafkas://…, nats://…, tls://… or sqs://… (default $"+brokerVariable+")")
	f.StringVar(&b.queue, "queue", "", "the queue, the topic of Kafka, or the stream of NATS, that is consumed")
	f.StringVar(&b.letters, "dead-letters", "", `the queue of its dead letters (default: the name of --queue with ".dead" appended, for NATS "-dead"; for SQS, the queue of its RedrivePolicy)`)
	f.BoolVar(&b.json, "json", false, "write JSON")
	cmd.AddCommand(a.dlqList(b), a.dlqShow(b), a.dlqReplay(b), a.dlqDiscard(b))
	return cmd
}

// brokerFlags are the flags of all dlq commands.
type brokerFlags struct {
	url, queue, letters string
	json                bool
}

// address returns the broker's URL.
func (b *brokerFlags) address() string { return cmp.Or(b.url, os.Getenv(brokerVariable)) }

// open connects to the broker.
func (b *brokerFlags) open(cmd *cobra.Command) (consume.DeadLetters, error) {
	url := b.address()
	switch {
	case url == "":
		return nil, usagef("which broker? Give --broker amqp://…, kafka://…, nats://… or sqs://…, or set %s", brokerVariable)
	case b.queue == "":
		return nil, usagef("which queue? Give --queue")
	}
	name := "everonce dlq, " + whoAmI()
	switch {
	case isSQS(url):
		return openSQS(cmd.Context(), url, b)
	case isKafka(url):
		return kafkaonce.DialDeadLetters(cmd.Context(), url, kafkaonce.Topic{Name: b.queue, DeadLetters: b.letters}, nil)
	case isNATS(url):
		return natsonce.DialDeadLetters(cmd.Context(), url, natsonce.Queue{Stream: b.queue, DeadLetters: b.letters}, &natsonce.Options{Name: name})
	}
	return rabbitonce.DialDeadLetters(cmd.Context(), url, rabbitonce.Queue{Name: b.queue, DeadLetters: b.letters}, &rabbitonce.Options{Name: name})
}

// isNATS reports whether a URL is one of NATS.
func isNATS(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return scheme == "nats" || scheme == "tls"
}

// isKafka reports whether a URL is one of Kafka.
func isKafka(url string) bool {
	return strings.HasPrefix(url, "kafka://") || strings.HasPrefix(url, "kafkas://")
}

// look opens the dead letters, and returns how many other consumers may hold some: those cannot be seen, so an empty
// list may mislead.
func (a *app) look(cmd *cobra.Command, b *brokerFlags) (l consume.DeadLetters, others int, err error) {
	if l, err = b.open(cmd); err != nil {
		return nil, 0, err
	}
	if others, err = l.Consumers(cmd.Context()); err != nil {
		return nil, 0, errors.Join(err, l.Close())
	}
	if others > 0 && !b.json {
		fmt.Fprintf(a.err, "There may be more: this does not show letters that other consumers hold (%s)\n", many(others, "consumer"))
	}
	return l, others, nil
}

// hexadecimal is the beginning of a letter's ID or of a key's hash. Set rejects an empty value, such as one from an
// unset variable, because it would select all letters.
type hexadecimal string

var hexDigits = regexp.MustCompile(`^[0-9a-fA-F]+$`)

func (h *hexadecimal) Set(s string) error {
	if !hexDigits.MatchString(s) {
		return errors.New("must be hexadecimal digits, as \"dlq list\" shows them (for a key, give its hash)")
	}
	*h = hexadecimal(strings.ToLower(s))
	return nil
}
func (h *hexadecimal) String() string { return string(*h) }
func (*hexadecimal) Type() string     { return "string" }

// which selects letters.
type which struct {
	letter, key          hexadecimal
	reasons              []string
	olderThan, newerThan time.Duration
	given                *pflag.FlagSet // which sets them
}

func (w *which) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	w.given = f
	f.Var(&w.letter, "letter", "only the letter whose ID begins with this, as \"dlq list\" shows it")
	f.Var(&w.key, "key", "only letters whose key's hash begins with this, as \"dlq list\" shows it")
	f.StringSliceVar(&w.reasons, "reason", nil, "only these reasons; separate them with commas, or repeat the flag")
	f.Var((*duration.Value)(&w.olderThan), "older-than", "only letters that have been dead for longer than this, like 24h or 30d")
	f.Var((*duration.Value)(&w.newerThan), "newer-than", "only letters that have been dead for less than this, like 24h or 30d")
	f.Lookup("older-than").DefValue, f.Lookup("newer-than").DefValue = "", "" // 0s is no bound
	complete(cmd, "reason", reasonNames()...)
}

// reasonNames returns the known reasons: those that consumers give, and the broker's.
func reasonNames() []string {
	names := []string{"broker_delivery_limit", "broker_expired", "broker_max_receive_count", "broker_maxlen", "broker_rejected"}
	for _, r := range []consume.Reason{
		consume.Rejected, consume.Exhausted, consume.Mismatch, consume.Unknown, consume.NoKey, consume.Undecodable, consume.TooLarge, consume.BadRecord,
	} {
		names = append(names, string(r))
	}
	return names
}

// anything reports whether the flags select all letters.
func (w *which) anything() bool {
	return w.letter == "" && w.key == "" && len(w.reasons) == 0 && w.olderThan == 0 && w.newerThan == 0
}

func (w *which) filter(b *brokerFlags, limit int) (consume.Filter, error) {
	f := consume.Filter{Queue: b.queue, ID: string(w.letter), KeyHash: string(w.key), Limit: limit}
	if isSQS(b.address()) && strings.Contains(f.Queue, "://") { // the URL of a queue, whose letters have its name
		f.Queue = f.Queue[strings.LastIndex(f.Queue, "/")+1:]
	}
	switch { // they would mean all
	case f.Queue == "" && b.queue != "":
		return f, usagef("--queue is a URL that ends without the name of a queue")
	case len(w.reasons) == 0 && w.given.Changed("reason"): // of a variable that is not set
		return f, usagef("--reason is empty; leave it out for any reason")
	case w.olderThan == 0 && w.given.Changed("older-than"):
		return f, usagef("--older-than is 0; leave it out for any age")
	case w.newerThan == 0 && w.given.Changed("newer-than"):
		return f, usagef("--newer-than is 0; leave it out for any age")
	}
	for _, name := range w.reasons {
		if !slices.Contains(reasonNames(), name) {
			return f, usagef("there is no reason %q; the reasons are %s", name, strings.Join(reasonNames(), ", "))
		}
		f.Reasons = append(f.Reasons, consume.Reason(name))
	}
	now := time.Now()
	if w.olderThan > 0 {
		f.Before = now.Add(-w.olderThan)
	}
	if w.newerThan > 0 {
		f.After = now.Add(-w.newerThan)
	}
	return f, nil
}
