package kafkaonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
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

// What Dial creates is kept as safely as the topic itself, and longer than a retry waits. A topic that would lose copies is refused.
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
