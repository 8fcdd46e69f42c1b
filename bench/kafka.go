package main

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// kafkaPartitions share the workers.
const kafkaPartitions = 2

// kafka is Kafka.
type kafka struct {
	url string
	out *kgo.Client
}

func newKafka(_ context.Context, url string) (_ broker, err error) {
	k := &kafka{url: url}
	k.out, err = k.client()
	return k, err
}

func (k *kafka) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(strings.TrimPrefix(k.url, "kafka://")), kgo.MetadataMinAge(100*time.Millisecond))...)
}

func (k *kafka) create(ctx context.Context, topic string) error {
	_, err := kadm.NewClient(k.out).CreateTopic(ctx, kafkaPartitions, 1, nil, topic)
	return err
}

func (k *kafka) serve(ctx context.Context, queue string, h *consume.Consumer, workers consume.Workers) (func(context.Context) error, error) {
	if err := k.create(ctx, queue); err != nil {
		return nil, err
	}
	workers.Concurrency /= kafkaPartitions
	topic, opts := kafkaonce.Topic{Name: queue, Delays: []time.Duration{time.Second}}, &kafkaonce.Options{Workers: workers}
	c, err := kafkaonce.Dial(ctx, k.url, topic, h, opts)
	for errors.Is(err, kerr.UnknownTopicOrPartition) && ctx.Err() == nil { // the broker answers before it has it
		c, err = kafkaonce.Dial(ctx, k.url, topic, h, opts)
	}
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

// bare keeps the order of each key, as ours does, and commits when all that a poll has brought is handled.
func (k *kafka) bare(ctx context.Context, queue string, handle func(context.Context, []byte) error) error {
	if err := k.create(ctx, queue); err != nil {
		return err
	}
	client, err := k.client(kgo.ConsumeTopics(queue), kgo.ConsumerGroup(queue), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	seed := maphash.MakeSeed()
	go func() {
		defer client.CloseAllowingRebalance()
		for ctx.Err() == nil {
			records := client.PollRecords(ctx, burst).Records()
			var lanes [consumerWorkers][]*kgo.Record
			for _, r := range records {
				lane := maphash.Bytes(seed, r.Key) % consumerWorkers
				lanes[lane] = append(lanes[lane], r)
			}
			var workers sync.WaitGroup
			for _, lane := range lanes {
				workers.Go(func() {
					for _, r := range lane {
						handle(ctx, r.Value) //nolint:errcheck // who waits for it has the error
					}
				})
			}
			workers.Wait()
			if client.CommitRecords(ctx, records...) != nil {
				return // the measurement is over
			}
			client.AllowRebalance()
		}
	}()
	return nil
}

func (k *kafka) send(ctx context.Context, queue string, messages []sent) error {
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: queue, Key: []byte(m.id), Value: m.body, Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(m.id)}}}
	}
	return k.out.ProduceSync(ctx, records...).FirstErr()
}

func (k *kafka) remove(queues []string) error {
	defer k.out.Close()
	var topics []string
	for _, q := range queues {
		topics = append(topics, q, q+".retry.1s", q+".dead")
	}
	_, err := kadm.NewClient(k.out).DeleteTopics(context.Background(), topics...)
	return err
}
