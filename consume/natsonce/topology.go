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

// established is what a queue has at the server. It is immutable.
type established struct {
	consumer  jetstream.Consumer
	config    jetstream.ConsumerConfig
	counts    jetstream.KeyValue
	created   time.Time // of the stream: a stream that is created anew has other messages
	retention jetstream.RetentionPolicy
	schedules bool   // the stream has some
	floor     uint64 // all messages up to here were acknowledged
	pending   int    // unacknowledged messages at that time
	seen      time.Time
	warnings  []string
}

// look returns e with the current state, as far as the server answers. schedules reports that schedules were
// delivered.
func (e *established) look(ctx context.Context, schedules bool) *established {
	now := *e
	now.seen, now.schedules = time.Now(), e.schedules || schedules
	if info, err := e.consumer.Info(ctx); err == nil {
		now.config, now.floor, now.pending = info.Config, info.AckFloor.Stream, info.NumAckPending
	}
	return &now
}

const (
	// maxAckPending is how many messages may be unanswered or wait for their retry: later messages are not delivered to
	// any consumer.
	maxAckPending = 20_000
	// duplicateWindow is how long the stream drops a second copy of a dead letter, which is stored after a crash.
	duplicateWindow = time.Hour
	// countedFor is how long a count outlives its last retry.
	countedFor = 7 * 24 * time.Hour
)

// establish declares what the queue needs, or checks that it exists. last is the earlier state of a running consumer,
// and nil at the start. lifetime is how long a handled message is remembered, or 0 to skip that check.
func (q *Queue) establish(ctx context.Context, js jetstream.JetStream, last *established, lifetime time.Duration) (*established, error) {
	stream, err := js.Stream(ctx, q.Stream)
	if err != nil {
		return nil, topologyError("the stream", q.Stream, err)
	}
	of := stream.CachedInfo()
	e := &established{created: of.Created, retention: of.Config.Retention, schedules: of.Config.AllowMsgSchedules, seen: time.Now()}
	letters, err := q.establishDeadLetters(ctx, js, of.Config.Replicas)
	if err != nil {
		return nil, err
	}
	if last == nil {
		e.warnings = q.deadLetterLimits(letters)
	}
	if e.counts, err = q.establishCounts(ctx, js, of.Config.Replicas); err != nil {
		return nil, err
	}
	e.consumer, err = stream.Consumer(ctx, q.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && q.Topology == DeclareOwn {
		config := q.durable(of, last)
		if err := q.usable(&config, &of.Config); err != nil { // before a new consumer takes messages from others
			return nil, err
		}
		e.consumer, err = stream.CreateConsumer(ctx, config)
		switch {
		case last != nil:
			e.warnings = append(e.warnings, fmt.Sprintf("the durable consumer was gone; a new one begins at sequence %d", max(config.OptStartSeq, of.State.FirstSeq)))
		case lifetime > 0 && (of.Config.MaxAge == 0 || of.Config.MaxAge > lifetime):
			e.warnings = append(e.warnings, fmt.Sprintf("the stream keeps messages for longer (max_age %v, where 0 is for ever) than a handled one is remembered (Lifetime, %v): those run again if the durable consumer is ever made anew",
				of.Config.MaxAge, lifetime))
		}
	}
	if err != nil {
		return nil, topologyError("the consumer", q.Durable, err)
	}
	info := e.consumer.CachedInfo()
	e.config, e.floor, e.pending = info.Config, info.AckFloor.Stream, info.NumAckPending
	return e, q.usable(&e.config, &of.Config)
}

// durable returns the configuration of the durable consumer. It begins at the first message, or, if a running consumer
// lost it, after the messages that were acknowledged. A stream whose messages are removed with their acknowledgement
// has no earlier messages, and allows no other start.
func (q *Queue) durable(stream *jetstream.StreamInfo, last *established) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable: q.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.AckWait, MaxDeliver: -1, MaxAckPending: maxAckPending, FilterSubjects: q.Subjects,
	}
	if last != nil && last.created.Equal(stream.Created) && stream.Config.Retention == jetstream.LimitsPolicy {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, min(last.floor, stream.State.LastSeq)+1
	}
	return c
}

// usable returns an error if messages would be lost, come back too early, or run again after their records are gone.
func (q *Queue) usable(c *jetstream.ConsumerConfig, of *jetstream.StreamConfig) error {
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
	case c.InactiveThreshold > 0:
		why = fmt.Sprintf("its inactive_threshold is %v: after that without a client it is deleted, and a new one runs old messages again (set it to 0, also in the stream's consumer_limits)", c.InactiveThreshold)
	case c.MemoryStorage && (of.Storage == jetstream.FileStorage || of.Replicas > 1):
		why = "it is kept in memory, and its stream is not: after a restart of the server a new one runs old messages again (make it anew without mem_storage)"
	case c.MaxRequestExpires > 0 && c.MaxRequestExpires < time.Second:
		why = fmt.Sprintf("its max_request_expires is %v (it must be at least 1s)", c.MaxRequestExpires)
	case len(c.PriorityGroups) > 0:
		why = "it has priority groups"
	case takesSchedules(filters, of) != "":
		why = takesSchedules(filters, of)
	case len(q.Subjects) > 0 && !slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(q.Subjects))):
		why = fmt.Sprintf("its subjects are %q and differ from Queue.Subjects", filters)
	default:
		return nil
	}
	return fmt.Errorf("%w: the consumer %q cannot be used: %s", ErrTopology, q.Durable, why)
}

func (q *Queue) establishDeadLetters(ctx context.Context, js jetstream.JetStream, replicas int) (*jetstream.StreamConfig, error) {
	stream, err := js.Stream(ctx, q.DeadLetters)
	if errors.Is(err, jetstream.ErrStreamNotFound) && q.Topology == DeclareOwn {
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: q.DeadLetters, Description: "dead letters of consumers of " + q.Stream, Subjects: []string{q.DeadLetters + ".>"},
			Replicas: replicas, Duplicates: duplicateWindow,
		})
	}
	if err != nil {
		return nil, topologyError("the stream of dead letters", q.DeadLetters, err)
	}
	c := &stream.CachedInfo().Config
	if c.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("%w: the stream %q of dead letters has the retention %v, with which the server may drop a dead letter (it must be limits)", ErrTopology, q.DeadLetters, c.Retention)
	}
	switch name, err := js.StreamNameBySubject(ctx, q.deadLetterSubject()); {
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, topologyError("the stream of dead letters", q.DeadLetters, err)
	case name != q.DeadLetters:
		return nil, fmt.Errorf("%w: the stream %q does not have the subject %q of dead letters", ErrTopology, q.DeadLetters, q.deadLetterSubject())
	}
	return c, nil
}

// deadLetterLimits returns a warning for each limit by which the server drops dead letters.
func (q *Queue) deadLetterLimits(c *jetstream.StreamConfig) (warnings []string) {
	warn := func(why string) {
		warnings = append(warnings, fmt.Sprintf("the stream %q drops dead letters: %s", q.DeadLetters, why))
	}
	if c.MaxAge > 0 {
		warn(fmt.Sprintf("its max_age is %v (set it to 0)", c.MaxAge))
	}
	old := c.Discard == jetstream.DiscardOld
	if old && (c.MaxMsgs > 0 || c.MaxBytes > 0) {
		warn("it has a limit of messages or bytes, and discards the oldest (set discard to new)")
	}
	if c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject) {
		warn("it has a limit of messages per subject (remove it, or set discard to new, and discard_new_per_subject)")
	}
	return warnings
}

func (q *Queue) establishCounts(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	bucket, err := js.KeyValue(ctx, q.Counts)
	if errors.Is(err, jetstream.ErrBucketNotFound) && q.Topology == DeclareOwn {
		bucket, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: q.Counts, Description: "retries of consumer " + q.Durable + " of " + q.Stream, TTL: countedFor, Replicas: replicas,
		})
	}
	if err != nil {
		return nil, topologyError("the key-value bucket", q.Counts, err)
	}
	return bucket, nil
}

// topologyError wraps an error of the server, with ErrTopology if it is a refusal and no missing answer.
func topologyError(what, name string, err error) error {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: JetStream is not enabled, or has no leader: %w", ErrUnreachable, err)
	}
	if _, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return fmt.Errorf("%w: %s %q does not exist or cannot be used: %w", ErrTopology, what, name, err)
	}
	return fmt.Errorf("natsonce: %s %q: %w", what, name, err)
}
