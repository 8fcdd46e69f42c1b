package natsonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrTopology says that a stream, a durable consumer or a bucket does not exist, or cannot be used. The text names it.
var ErrTopology = errors.New("natsonce: wrong streams")

// established is what a queue has at the server.
type established struct {
	consumer jetstream.Consumer
	counts   jetstream.KeyValue
	ackWait  time.Duration
}

const (
	// maxAckPending is how many messages may be in hand or wait for their retry: those behind them come to nobody.
	maxAckPending = 20_000
	// buriedWithin is how long a letter that is buried again, after a crash in between, is known to be there already.
	buriedWithin = time.Hour
	// countedFor is how long a count outlives its last retry.
	countedFor = 7 * 24 * time.Hour
)

// establish declares what the queue needs, or checks that it is there.
func (q *Queue) establish(ctx context.Context, js jetstream.JetStream) (*established, error) {
	stream, err := js.Stream(ctx, q.Stream)
	if err != nil {
		return nil, refused("the stream", q.Stream, err)
	}
	replicas := stream.CachedInfo().Config.Replicas
	if err := q.establishDeadLetters(ctx, js, replicas); err != nil {
		return nil, err
	}
	e := &established{}
	if e.counts, err = q.establishCounts(ctx, js, replicas); err != nil {
		return nil, err
	}
	e.consumer, err = stream.Consumer(ctx, q.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && q.Topology == DeclareOwn {
		e.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: q.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.AckWait, MaxDeliver: -1, MaxAckPending: maxAckPending, FilterSubjects: q.Subjects,
		})
	}
	if err != nil {
		return nil, refused("the consumer", q.Durable, err)
	}
	info := e.consumer.CachedInfo()
	e.ackWait = info.Config.AckWait
	return e, q.usable(&info.Config)
}

// usable refuses a durable consumer under which messages would be lost, or come back too early.
func (q *Queue) usable(c *jetstream.ConsumerConfig) error {
	var why string
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		why = "its ack_policy is not explicit"
	case len(c.BackOff) > 0:
		why = "it has a backoff, which overrides ack_wait and the delay of a retry (remove it)"
	case c.MaxDeliver > 0:
		why = fmt.Sprintf("its max_deliver is %d: after that a message is not delivered any more, and is no dead letter (set it to -1)", c.MaxDeliver)
	case c.HeadersOnly:
		why = "it delivers headers only"
	case len(c.PriorityGroups) > 0:
		why = "it has priority groups"
	case len(q.Subjects) > 0 && !slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(q.Subjects))):
		why = fmt.Sprintf("its subjects are %q, and not those of Queue.Subjects", filters)
	default:
		return nil
	}
	return fmt.Errorf("%w: the consumer %q cannot be used: %s", ErrTopology, q.Durable, why)
}

func (q *Queue) establishDeadLetters(ctx context.Context, js jetstream.JetStream, replicas int) error {
	stream, err := js.Stream(ctx, q.DeadLetters)
	if err == nil && stream.CachedInfo().Config.Retention != jetstream.LimitsPolicy {
		return fmt.Errorf("%w: the stream %q of dead letters has the retention %v, with which the server may drop a letter (it must be limits)", ErrTopology, q.DeadLetters, stream.CachedInfo().Config.Retention)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) && q.Topology == DeclareOwn {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: q.DeadLetters, Description: "dead letters of consumers of " + q.Stream, Subjects: []string{q.DeadLetters + ".>"},
			Replicas: replicas, Duplicates: buriedWithin,
		})
	}
	if err != nil {
		return refused("the stream of dead letters", q.DeadLetters, err)
	}
	switch name, err := js.StreamNameBySubject(ctx, q.letters()); {
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return refused("the stream of dead letters", q.DeadLetters, err)
	case name != q.DeadLetters:
		return fmt.Errorf("%w: the stream %q does not have the subject %q of dead letters", ErrTopology, q.DeadLetters, q.letters())
	}
	return nil
}

func (q *Queue) establishCounts(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	bucket, err := js.KeyValue(ctx, q.Counts)
	if errors.Is(err, jetstream.ErrBucketNotFound) && q.Topology == DeclareOwn {
		bucket, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: q.Counts, Description: "retries of consumer " + q.Durable + " of " + q.Stream, TTL: countedFor, Replicas: replicas,
		})
	}
	if err != nil {
		return nil, refused("the key-value bucket", q.Counts, err)
	}
	return bucket, nil
}

// refused tells what the server refuses from one that does not answer.
func refused(what, name string, err error) error {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: JetStream is not enabled, or has no leader: %w", ErrUnreachable, err)
	}
	if _, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return fmt.Errorf("%w: %s %q does not exist or cannot be used: %w", ErrTopology, what, name, err)
	}
	return fmt.Errorf("natsonce: %s %q: %w", what, name, err)
}
