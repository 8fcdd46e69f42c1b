package e2e

import (
	"context"
	"fmt"
	"net/url"

	"github.com/everonce/everonce/consume"
)

// broker is the part of a broker that the stream needs. Each way of consuming has a separate queue.
type broker interface {
	// consumer returns what consumes in a way, by the spec's line, and gives up soon what does not answer.
	consumer(ctx context.Context, way string, h *consume.Consumer, workers consume.Workers) (runner, error)
	// declare makes the queues of ways, as any consumer does; remove deletes them, with what belongs to them.
	declare(ctx context.Context, ways []string) error
	remove(ctx context.Context, ways []string) error
	// publish sends messages, and returns those that the broker has not confirmed. A message has the ID op-N and the
	// payload of operation. After an error cut is called, and publish connects again.
	publish(way string, ops []int) (left []int, err error)
	cut()
	// waiting is how many messages are ready in the queues of ways, by queue: way, way.retry… and way.dead.
	waiting(ways []string) (map[string]int, error)
	// letters are the dead letters of a way.
	letters(ctx context.Context, way string) (consume.DeadLetters, error)
}

// runner is a consumer.
type runner interface {
	Run(ctx context.Context) error
}

// brokerKind is the part of a kind of broker that the tests need.
type brokerKind struct {
	server  string // its name in scripts/services.d
	connect func(*messageSpec) broker
	// ackFirst is whether there is a consumer that makes that mistake.
	ackFirst bool
	// flags is whether a delivery that is not the first of its message says so.
	flags bool
	// written is called before a server is killed for the first time, and revive after each time.
	written, revive func(*server)
}

// brokerKinds are all of them.
var brokerKinds = map[string]brokerKind{
	"kafka":    {server: "kafka", connect: newKafka, written: func(*server) {}, revive: func(s *server) { s.Up() }},
	"rabbitmq": {server: "rabbitmq", connect: newRabbit, ackFirst: true, flags: true, written: (*server).writeDown, revive: (*server).revive},
	"nats":     {server: "nats", connect: newNATS, written: func(*server) {}, revive: func(s *server) { s.Up() }},
	"sqs":      {server: "sqs", connect: newSQS, written: func(*server) {}, revive: func(s *server) { s.Up() }},
}

// broker connects to the spec's.
func (s *messageSpec) broker() broker { return brokerKinds[s.Kind].connect(s) }

// byLine is the broker's URL by the line.
func (s *messageSpec) byLine() string {
	u, err := url.Parse(s.Broker)
	if err != nil || s.Line == "" {
		return s.Broker
	}
	u.Host = s.Line
	return u.String()
}

// ways are those in which a kind of broker is consumed.
func (k *brokerKind) ways() []string {
	if k.ackFirst {
		return append([]string{wayBare, wayAckFirst}, rightWays...)
	}
	return append([]string{wayBare}, rightWays...)
}

// message is what is sent for an operation.
func message(op int) (id string, body []byte) {
	return fmt.Sprint("op-", op), fmt.Appendf(nil, `{"op":%d}`, op)
}
