package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Consumer delivers the messages of a topic to a [consume.Consumer].
type Consumer struct {
	topic     Topic
	delays    map[string]time.Duration // of the retry topics
	handler   *consume.Consumer
	opts      Options
	client    *kgo.Client // a member of the group from Run on
	alone     *kgo.Client // produces copies that are too large for client
	forgotten forgotten
	limits    limits
	table     offsetsTable // nil if the handler has none

	stop       context.CancelFunc
	serving    sync.WaitGroup // of partitions
	watching   sync.WaitGroup // of missing topics
	committing sync.Mutex     // held while offsets are committed and while partitions are revoked

	mu         sync.Mutex
	partitions map[place]*partition
	missing    map[string]bool      // missing topics
	found      map[string]time.Time // when a missing topic was found
	ran        bool
	failed     error
}

// Dial connects to a broker, and creates or checks the topics. ctx bounds Dial only. Dial does not join the group:
// [Consumer.Run] does. url is kafka://[user:password@]host:port[,host:port…], or kafkas://… for TLS. A user is
// authenticated by SASL PLAIN, or with ?mechanism=scram-sha-256 or scram-sha-512. opts may be nil. No error contains
// the URL. The error wraps [everonce.ErrInvalidArgument] if an argument is invalid, [ErrUnreachable] if no broker
// answers or it refuses the user, and [ErrTopology] if a topic does not exist, the user may not use it, or it would
// lose retries or dead letters.
func Dial(ctx context.Context, url string, topic Topic, handler *consume.Consumer, opts *Options) (*Consumer, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: kafkaonce: the handler is nil", everonce.ErrInvalidArgument)
	}
	t, err := topic.withDefaults()
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults(handler.Name())
	if err != nil {
		return nil, err
	}
	if err := handler.CheckWorkers(&o.Workers); err != nil {
		return nil, err
	}
	c := &Consumer{topic: t, handler: handler, opts: o, partitions: map[place]*partition{}, missing: map[string]bool{}, found: map[string]time.Time{}}
	table, err := c.withTable(handler)
	if err != nil {
		return nil, err
	}
	if c.table != nil && (opts == nil || opts.Workers.Concurrency == 0) {
		c.opts.Workers.Concurrency = 1 // so that each transaction writes the offset after its own messages
	}
	ours := append(append(o.group(), table...), kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 { return c.limits.of(topic) }))
	if c.alone, err = newAlone(url, append([]kgo.Opt{dense()}, o.Client...)); err != nil {
		return nil, err
	}
	if c.client, err = newClient(url, o.Client, ours); err != nil {
		c.alone.Close()
		return nil, err
	}
	if err = reach(ctx, c.client); err == nil {
		c.delays, c.limits, err = t.establish(ctx, c.client, o.Workers.Log)
	}
	if err == nil {
		err = mayJoin(ctx, c.client, o.Group)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

var errRan = fmt.Errorf("%w: kafkaonce: the consumer already ran or was closed (make a new one with Dial)", everonce.ErrInvalidArgument)

// Run joins the group and handles messages until ctx ends. Then it drains: it takes no more messages, lets handlers
// finish within [consume.Workers.DrainTimeout], commits, and leaves the group. Run waits for brokers that cannot be
// reached, and for missing topics. It may be called once. It returns the error of [consume.Consumer.Serve], or an
// error that wraps [ErrTopology] if a topic was deleted and created anew meanwhile, or [ErrFenced] if the table of
// [Offsets] has lost a row or a commit.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	ran := c.ran
	c.ran = true
	c.mu.Unlock()
	if ran {
		return errRan
	}
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	c.client.AddConsumeTopics(append(slices.Collect(maps.Keys(c.delays)), c.topic.Name)...) // joins the group
	var committing sync.WaitGroup
	committing.Go(func() { c.commitAtIntervals(ctx) })
	c.poll(ctx)
	committing.Wait()
	c.watching.Wait()
	c.release(context.WithoutCancel(ctx), c.all())
	c.client.CloseAllowingRebalance()
	c.alone.Close()
	c.serving.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Close closes the connection of a consumer that did not run. After [Consumer.Run] it does nothing. The error is nil.
func (c *Consumer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ran {
		c.ran = true
		c.client.Close()
		c.alone.Close()
	}
	return nil
}

// fail ends Run with an error.
func (c *Consumer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	c.stop()
}

// poll gives fetched records to their partitions until ctx ends. A rebalance waits only for this, because no poll
// returns records of revoked partitions.
func (c *Consumer) poll(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollRecords(ctx, c.opts.Buffer)
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if errors.Is(f.Err, kerr.UnknownTopicID) {
				c.topicMissing(ctx, f.Topic, f.Err)
			} else if f.Err != nil && ctx.Err() == nil {
				c.opts.Workers.Log.WarnContext(ctx, "kafkaonce: a partition cannot be read", "consumer", c.handler.Name(), "topic", f.Topic, "partition", f.Partition, "error", f.Err)
			}
			if p := c.at(place{f.Topic, f.Partition}); p != nil && len(f.Records) > 0 {
				p.add(f.FetchPartition)
			}
		})
		c.client.AllowRebalance()
	}
}
