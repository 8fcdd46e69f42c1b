package kafkaonce_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/outbox"
)

// set sets settings of a topic, and returns when the broker has them.
func (b *bench) set(topic string, settings map[string]string) {
	b.t.Helper()
	var alter []kadm.AlterConfig
	for name, value := range settings {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	if _, err := b.admin.AlterTopicConfigs(b.ctx, alter, topic); err != nil {
		b.t.Fatal(err)
	}
	for name, value := range settings {
		for b.settings(topic)[name] != value { // the broker answers before it has it
		}
	}
}

func (b *bench) settings(topic string) map[string]string {
	b.t.Helper()
	configs, err := b.admin.DescribeTopicConfigs(b.ctx, topic)
	if err != nil || configs[0].Err != nil {
		b.t.Fatal(err, configs)
	}
	settings := map[string]string{}
	for _, c := range configs[0].Configs {
		settings[c.Key] = c.MaybeValue()
	}
	return settings
}

// Topics that Dial creates are as durable as the topic itself, and keep messages longer than a retry waits. A topic
// that would lose copies is refused.
func TestTopicsThatLoseNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	h := newHandler(t)
	b.set(b.topic.Name, map[string]string{"retention.ms": "60000", "retention.bytes": "1000", "min.insync.replicas": "2", "max.message.bytes": "2000000"})
	dial := func() error {
		c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, h, &kafkaonce.Options{Workers: consume.Workers{Log: quiet}})
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]map[string]string{
		b.retry("400ms"): {"cleanup.policy": "delete", "retention.ms": "3600400", "retention.bytes": "-1", "min.insync.replicas": "2", "max.message.bytes": "2016384"},
		b.letters():      {"cleanup.policy": "compact", "min.insync.replicas": "2", "max.message.bytes": "2016384"},
	} {
		got := b.settings(topic)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s of %s is %s, want %s", name, topic, got[name], value)
			}
		}
	}
	source := make([]kmsg.MetadataResponseTopicPartition, 6)
	source[0].Replicas = []int32{1, 2, 3}
	if partitions, replicas := kafkaonce.Shape(source, time.Second); partitions != 6 || replicas != 3 {
		t.Errorf("a retry topic has %d partitions, %d replicas", partitions, replicas)
	}
	if partitions, replicas := kafkaonce.Shape(source, 0); partitions != 1 || replicas != 3 {
		t.Errorf("dead letters have %d partitions, %d replicas", partitions, replicas)
	}

	for _, c := range []struct{ topic, setting, bad, good string }{
		{b.retry("100ms"), "cleanup.policy", "compact", "delete"},
		{b.retry("100ms"), "retention.ms", "1000", "-1"},
		{b.letters(), "cleanup.policy", "delete", "compact"},
		{b.letters(), "max.message.bytes", "5000", "2000000"},
		{b.letters(), "cleanup.policy", "compact,delete", ""},
	} {
		b.set(c.topic, map[string]string{c.setting: c.bad})
		if err := dial(); (c.good != "") != (errors.Is(err, kafkaonce.ErrTopology) && strings.Contains(err.Error(), c.topic)) {
			t.Errorf("%s with %s=%s: %v", c.topic, c.setting, c.bad, err)
		}
		if c.good != "" {
			b.set(c.topic, map[string]string{c.setting: c.good})
		}
	}
}

// remove deletes a topic, and returns when the broker does not know it any more.
func (b *bench) remove(topic string) {
	b.t.Helper()
	if _, err := b.admin.DeleteTopics(b.ctx, topic); err != nil {
		b.t.Fatal(err)
	}
	for {
		topics, err := b.admin.ListTopics(b.ctx, topic)
		if err != nil {
			b.t.Fatal(err)
		}
		if errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition) {
			return
		}
	}
}

// A topic that is deleted and created anew is another one, with other offsets: Run ends and says so, instead of asking for the old one again and
// again. The next one consumes the new one, and so does a Transform.
func TestATopicThatIsCreatedAnewEndsRun(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, 1), newBench(t, 1)
	transformed, soon := make(chan string, 10), []kgo.Opt{kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}
	b.transforming(func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		transformed <- string(r.Key)
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{Client: soon})
	b.group, b.ends = newName(), kafkaonce.ErrTopology
	r := b.run(specOf(nothing), &kafkaonce.Options{Client: soon})
	b.send(record("m-1", "old"), record("m-2", "old"))
	r.wants(everonce.Executed, everonce.Executed)
	for range 2 {
		await(t, transformed, "the old topic's record")
	}
	b.remove(b.topic.Name)
	b.create(b.topic.Name, 1, nil)
	await(t, r.done, "the end of Run")
	b.ends = nil
	r = b.run(specOf(nothing), nil)
	m := record("m-3", "new")
	m.Topic = b.topic.Name
	out.send(m) // by a client that has not seen the old one
	r.wants(everonce.Executed)
	for await(t, transformed, "the new topic's record") != "new" {
	}
}

// The dead-letter topic was deleted and created anew by the consumer: dead letters go there. So do the events of an
// outbox, and events of other topics do not wait.
func TestATopicThatIsCreatedAnewIsPublishedTo(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
	}), nil)
	l, p, e := b.open(), newPublisher(t, b.url), event(b.letters(), "e-1", "a")
	b.send(record("m-1", "a"))
	r.wants(everonce.Rejected)
	if err := errors.Join(p.Publish(t.Context(), []outbox.Event{e})...); err != nil {
		t.Fatal(err)
	}
	b.remove(b.letters())
	b.send(record("m-2", "a"))
	for letters := 0; letters == 0; {
		if topics, err := b.admin.ListTopics(b.ctx, b.letters()); err == nil && topics[b.letters()].Err == nil {
			letters = len(b.all(l, consume.Filter{}))
		}
	}
	for {
		err := p.Publish(t.Context(), []outbox.Event{e})[0]
		if err == nil {
			break
		}
		if errors.Is(err, outbox.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// A retry comes though its delay is not used any more, and its consumer has another name in the same group.
func TestRetriesOutliveTheirDelayAndTheirConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	spec := specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("not yet")) })
	spec.Retry.Limit = 1000
	delays := b.topic.Delays
	b.topic.Delays = delays[:1]
	r := b.run(spec, nil)
	b.send(record("m-1", "a"))
	r.wants(everonce.Failed)
	r.stop()
	b.topic.Delays = delays[1:]
	spec = specOf(nothing)
	spec.Consumer = "invoicing"
	b.run(spec, nil).wants(everonce.Executed)
}

// A deleted topic, such as an unused retry topic, does not end Run. A topic that is created in its place does.
func TestATopicThatIsDeletedIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	log := make(logged, 10_000)
	r := b.run(specOf(nothing), &kafkaonce.Options{Workers: consume.Workers{Log: slog.New(slog.NewTextHandler(log, nil))}})
	old := b.retry("100ms")
	b.send(record("m-1", "a"))
	r.wants(everonce.Executed)
	b.remove(old)
	b.topic.Delays, b.ends = b.topic.Delays[1:], kafkaonce.ErrTopology
	b.run(specOf(nothing), nil).event(b, kafkaonce.Assigned) // a rebalance, at which the group asks for the topics anew
	for !strings.Contains(await(t, log, "the missing topic"), "a topic is missing") {
	}
	b.send(record("m-2", "a"))
	r.wants(everonce.Executed)
	b.create(old, 2, nil)
	await(t, r.done, "the end of Run")
	b.ends = nil
}
