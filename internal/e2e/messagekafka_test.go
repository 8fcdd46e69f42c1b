package e2e

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// kafka is Kafka.
type kafka struct {
	spec *messageSpec
	out  *kgo.Client // the publisher's
}

func newKafka(spec *messageSpec) broker { return &kafka{spec: spec} }

const kafkaPartitions = 4

// kafkaTopic is the topic of a way; it is the name of its group too.
func kafkaTopic(s *messageSpec, way string) kafkaonce.Topic {
	return kafkaonce.Topic{Name: s.Queues + "." + way, Delays: []time.Duration{200 * time.Millisecond, time.Second}}
}

func (k *kafka) consumer(ctx context.Context, way string, h *consume.Consumer, workers consume.Workers) (runner, error) {
	opts := &kafkaonce.Options{Group: kafkaTopic(k.spec, way).Name, Workers: workers, SessionTimeout: 2 * time.Second, RebalanceTimeout: 5 * time.Second}
	if k.spec.Line != "" {
		opts.Client = []kgo.Opt{kgo.RequestTimeoutOverhead(time.Second), kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, k.spec.Line) // wherever the broker says that it is
		})}
	}
	return kafkaonce.Dial(ctx, k.spec.Broker, kafkaTopic(k.spec, way), h, opts)
}

func (k *kafka) letters(ctx context.Context, way string) (consume.DeadLetters, error) {
	return kafkaonce.DialDeadLetters(ctx, k.spec.Broker, kafkaTopic(k.spec, way), nil)
}

func (k *kafka) client() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(k.spec.Broker, "kafka://")), kgo.MetadataMinAge(100*time.Millisecond), kgo.RecordDeliveryTimeout(brokerTimeout))
}

func (k *kafka) asking(ctx context.Context, ask func(context.Context, *kadm.Client) error) error {
	client, err := k.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	return ask(ctx, kadm.NewClient(client))
}

func (k *kafka) declare(ctx context.Context, ways []string) error {
	nobody, err := consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: "none", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, operation) (bool, error) { return false, nil },
	})
	if err != nil {
		return err
	}
	for _, way := range ways {
		if err := k.asking(ctx, func(ctx context.Context, admin *kadm.Client) error {
			_, err := admin.CreateTopic(ctx, kafkaPartitions, 1, nil, kafkaTopic(k.spec, way).Name)
			return err
		}); err != nil {
			return err
		}
		c, err := kafkaonce.Dial(ctx, k.spec.Broker, kafkaTopic(k.spec, way), nobody, nil)
		for errors.Is(err, kafkaonce.ErrTopology) && ctx.Err() == nil { // the broker answers before it has it
			c, err = kafkaonce.Dial(ctx, k.spec.Broker, kafkaTopic(k.spec, way), nobody, nil)
		}
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// topics are the names of the topic of a way and its retry topics.
func (k *kafka) topics(way string) []string {
	t := kafkaTopic(k.spec, way)
	names := []string{t.Name}
	for _, d := range t.Delays {
		names = append(names, t.Name+".retry."+d.String())
	}
	return names
}

func (k *kafka) remove(ctx context.Context, ways []string) error {
	return k.asking(ctx, func(ctx context.Context, admin *kadm.Client) error {
		for _, way := range ways {
			if _, err := admin.DeleteTopics(ctx, append(k.topics(way), kafkaTopic(k.spec, way).Name+".dead")...); err != nil {
				return err
			}
		}
		return nil
	})
}

// waiting returns how many messages are not committed.
func (k *kafka) waiting(ways []string) (map[string]int, error) {
	counts := map[string]int{}
	short := func(topic string) string { return strings.TrimPrefix(topic, k.spec.Queues+".") }
	return counts, k.asking(context.Background(), func(ctx context.Context, admin *kadm.Client) error {
		for _, way := range ways {
			ends, err := admin.ListEndOffsets(ctx, k.topics(way)...)
			if err = errors.Join(err, ends.Error()); err != nil {
				return err
			}
			committed, err := admin.FetchOffsets(ctx, kafkaTopic(k.spec, way).Name)
			if err != nil {
				return err
			}
			ends.Each(func(end kadm.ListedOffset) {
				left := end.Offset
				if o, ok := committed.Lookup(end.Topic, end.Partition); ok && o.At > 0 {
					left -= o.At
				}
				if left > 0 {
					counts[short(end.Topic)] += int(left)
				}
			})
			letters, err := k.letters(ctx, way)
			if err != nil {
				return err
			}
			for _, e := range letters.All(ctx, consume.Filter{}) {
				if err = errors.Join(err, e); e == nil {
					counts[way+".dead"]++
				}
			}
			if err = errors.Join(err, letters.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k *kafka) publish(way string, ops []int) (left []int, err error) {
	if k.out == nil {
		if k.out, err = k.client(); err != nil {
			return ops, err
		}
	}
	records := make([]*kgo.Record, len(ops))
	of := map[*kgo.Record]int{}
	for i, op := range ops {
		id, body := message(op)
		records[i] = &kgo.Record{Topic: kafkaTopic(k.spec, way).Name, Key: []byte(id), Value: body, Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
		of[records[i]] = op
	}
	for _, r := range k.out.ProduceSync(context.Background(), records...) {
		if r.Err != nil {
			left, err = append(left, of[r.Record]), r.Err
		}
	}
	return left, err
}

func (k *kafka) cut() {
	if k.out != nil {
		k.out.Close()
		k.out = nil
	}
}
