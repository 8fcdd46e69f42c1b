package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce/internal/retry"
)

// ErrTopology says that a topic does not exist or would lose messages, or that the user may not use a topic or the
// group. The text names it.
var ErrTopology = errors.New("kafkaonce: wrong topics")

// defaultLargest is the default of max.message.bytes.
const defaultLargest = 1<<20 + 12

// need is what the user must be allowed to do with topics.
type need map[string][]kadm.ACLOperation

// needs returns the operations that a consumer needs on its topics.
func (t *Topic) needs(delays map[string]time.Duration) need {
	all := need{t.Name: {kmsg.ACLOperationRead}, t.DeadLetters: {kmsg.ACLOperationWrite}}
	for name := range delays {
		all[name] = []kadm.ACLOperation{kmsg.ACLOperationRead}
	}
	for name := range t.retries() {
		all[name] = []kadm.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite}
	}
	return all
}

// establish creates the topics, or checks that they exist and lose nothing. It returns the delays of the retry topics,
// and the size of the largest batch that each topic accepts.
func (t *Topic) establish(ctx context.Context, client *kgo.Client, log *slog.Logger) (delays map[string]time.Duration, largest limits, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	created := false
	if t.Topology == Declare {
		if created, err = t.create(ctx, client, admin); err != nil {
			return nil, nil, err
		}
	}
	if delays, err = t.allRetries(ctx, admin); err != nil {
		return nil, nil, err
	}
	needs := t.needs(delays)
	var configs kadm.ResourceConfigs
	for {
		if err = needs.check(ctx, client); err == nil {
			configs, err = configsOf(ctx, admin, slices.Collect(maps.Keys(needs))...)
		}
		if err == nil {
			break
		}
		if !created || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, nil, err
		}
		if retry.Pause(ctx, 50*time.Millisecond) != nil { // not all brokers know it yet
			return nil, nil, err
		}
	}
	largest = make(limits, len(needs))
	for _, r := range configs {
		largest[r.Name] = int32(number(&r, "max.message.bytes", defaultLargest)) //nolint:gosec // Kafka's are 32 bits
		if err := t.checkRetention(ctx, &r, delays, log); err != nil {
			return nil, nil, err
		}
	}
	return delays, largest, nil
}

// configsOf returns the settings of topics, without those that the user may not see.
func configsOf(ctx context.Context, admin *kadm.Client, names ...string) (seen kadm.ResourceConfigs, err error) {
	for _, name := range names { // one by one: kadm stops at one that the user may not see
		configs, err := admin.DescribeTopicConfigs(ctx, name)
		if _, denied := errors.AsType[*kadm.AuthError](err); denied {
			continue
		}
		if err == nil && len(configs) == 1 {
			err = configs[0].Err
		}
		if err != nil {
			return nil, fmt.Errorf("kafkaonce: asking for the settings of topic %q: %w", name, err)
		}
		seen = append(seen, configs...)
	}
	return seen, nil
}

// allRetries returns the delays of all retry topics that exist, also for earlier Delays: messages may wait there.
func (t *Topic) allRetries(ctx context.Context, admin *kadm.Client) (map[string]time.Duration, error) {
	delays := t.retries()
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafkaonce: asking for topics: %w", err)
	}
	for name := range topics {
		if text, ok := strings.CutPrefix(name, t.Name+".retry."); ok {
			if d, err := time.ParseDuration(text); err == nil && d > 0 && t.retryTopic(d) == name {
				delays[name] = d
			}
		}
	}
	return delays, nil
}

// create creates missing topics, modelled on the topic itself.
func (t *Topic) create(ctx context.Context, client *kgo.Client, admin *kadm.Client) (created bool, err error) {
	delays := t.retries()
	names := slices.Collect(maps.Keys(t.needs(delays)))
	topics, err := metadata(ctx, client, names)
	if err != nil {
		return false, err
	}
	if err := topics.error(t.Name); err != nil {
		return false, err
	}
	configs, err := configsOf(ctx, admin, t.Name)
	if err != nil {
		return false, err
	}
	var source kadm.ResourceConfig // empty if the user may not see it
	if len(configs) == 1 {
		source = configs[0]
	}
	for _, name := range names {
		if !errors.Is(topics.error(name), kerr.UnknownTopicOrPartition) {
			continue
		}
		created = true
		partitions, replicas := shape(topics[t.Name].Partitions, delays[name])
		_, err := admin.CreateTopic(ctx, partitions, replicas, settings(&source, delays[name]), name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return false, fmt.Errorf("%w: topic %q cannot be created (create it, or allow the user to): %w", ErrTopology, name, err)
		}
	}
	return created, nil
}

// shape returns the partitions and replicas of a new retry topic, or, without a delay, of the dead-letter topic.
func shape(source []kmsg.MetadataResponseTopicPartition, delay time.Duration) (partitions int32, replicas int16) {
	replicas = int16(len(source[0].Replicas)) //nolint:gosec // a broker has no more
	if delay == 0 {
		return 1, replicas
	}
	return int32(len(source)), replicas //nolint:gosec // partition numbers have 32 bits
}

// check requests the topics and the operations that the user may perform on them.
func (n need) check(ctx context.Context, client *kgo.Client) error {
	topics, err := metadata(ctx, client, slices.Collect(maps.Keys(n)))
	if err != nil {
		return err
	}
	for name, ops := range n {
		if err := topics.error(name); err != nil {
			return err
		}
		allowed := kadm.DecodeACLOperations(topics[name].AuthorizedOperations)
		for _, op := range ops {
			if len(allowed) > 0 && !slices.Contains(allowed, op) {
				return fmt.Errorf("%w: the user may not %v topic %q: %w", ErrTopology, op, name, kerr.TopicAuthorizationFailed)
			}
		}
	}
	return nil
}

// known is the brokers' metadata of topics.
type known map[string]kmsg.MetadataResponseTopic

func metadata(ctx context.Context, client *kgo.Client, names []string) (known, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("kafkaonce: asking for topics: %w", err)
	}
	topics := known{}
	for _, topic := range resp.Topics {
		topics[*topic.Topic] = topic
	}
	return topics, nil
}

// error returns what is wrong with a topic, or nil.
func (k known) error(name string) error {
	switch err := kerr.ErrorForCode(k[name].ErrorCode); {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w: topic %q does not exist: %w", ErrTopology, name, err)
	default:
		return fmt.Errorf("%w: topic %q: %w", ErrTopology, name, err)
	}
}

// mayJoin requests the offsets of a group, which its members may read. It ignores other errors: Run waits for the
// group.
func mayJoin(ctx context.Context, client *kgo.Client, group string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := kadm.NewClient(client).FetchOffsets(ctx, group); errors.Is(err, kerr.GroupAuthorizationFailed) {
		return fmt.Errorf("%w: the user may not read with the group %q: %w", ErrTopology, group, err)
	}
	return nil
}

// limits is the size of the largest batch of each topic.
type limits map[string]int32

func (l limits) of(topic string) int32 {
	if n, ok := l[topic]; ok {
		return max(n, 512) // the client's minimum
	}
	return defaultLargest
}
