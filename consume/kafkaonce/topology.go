package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce/internal/retry"
)

// ErrTopology says that a topic does not exist, or that the user may not use a topic or the group. The text names it.
var ErrTopology = errors.New("kafkaonce: wrong topics")

// headroom is what a copy adds to a message, at most, and the frame of a batch.
const headroom = 16 << 10

// defaultLargest is the default of max.message.bytes.
const defaultLargest = 1<<20 + 12

// need is what a user must be allowed to do with a topic.
type need map[string][]kadm.ACLOperation

// needs returns what a consumer does with its topics.
func (t *Topic) needs() need {
	all := need{t.Name: {kmsg.ACLOperationRead}, t.DeadLetters: {kmsg.ACLOperationWrite}}
	for name := range t.retries() {
		all[name] = []kadm.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite}
	}
	return all
}

// establish creates the topics, or checks that they are there, and returns the size of the largest batch that each takes.
func (t *Topic) establish(ctx context.Context, client *kgo.Client) (largest limits, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	admin := kadm.NewClient(client)
	created := false
	if t.Topology == Declare {
		if created, err = t.create(ctx, client, admin); err != nil {
			return nil, err
		}
	}
	needs := t.needs()
	for err = needs.check(ctx, client); err != nil; err = needs.check(ctx, client) {
		if !created || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, err
		}
		if retry.Pause(ctx, 50*time.Millisecond) != nil { // the brokers have not all heard of it
			return nil, err
		}
	}
	largest = make(limits, len(needs))
	configs, _ := admin.DescribeTopicConfigs(ctx, slices.Collect(maps.Keys(needs))...) //nolint:errcheck // who may not see them has the defaults
	for _, r := range configs {
		largest[r.Name] = int32(setting(&r, "max.message.bytes", defaultLargest)) //nolint:gosec // Kafka's are 32 bits
	}
	return largest, nil
}

// create creates what does not exist, by what the topic itself is.
func (t *Topic) create(ctx context.Context, client *kgo.Client, admin *kadm.Client) (created bool, err error) {
	names := slices.Collect(maps.Keys(t.needs()))
	topics, err := metadata(ctx, client, names)
	if err != nil {
		return false, err
	}
	if err := topics.error(t.Name); err != nil {
		return false, err
	}
	retries, letters := map[string]*string{"cleanup.policy": kadm.StringPtr("delete")}, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}
	if configs, err := admin.DescribeTopicConfigs(ctx, t.Name); err == nil && configs[0].Err == nil { // who may not see them has the broker's defaults
		room := strconv.Itoa(setting(&configs[0], "max.message.bytes", defaultLargest) + headroom)
		retries["max.message.bytes"], letters["max.message.bytes"] = &room, &room
		if keep := setting(&configs[0], "retention.ms", 0); keep != 0 {
			retries["retention.ms"] = kadm.StringPtr(strconv.Itoa(keep))
		}
	}
	for _, name := range names {
		if !errors.Is(topics.error(name), kerr.UnknownTopicOrPartition) {
			continue
		}
		partitions, configs := len(topics[t.Name].Partitions), retries
		if name == t.DeadLetters {
			partitions, configs = 1, letters
		}
		created = true
		_, err := admin.CreateTopic(ctx, int32(partitions), -1, configs, name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return false, fmt.Errorf("%w: topic %q cannot be created (create it, or allow the user to): %w", ErrTopology, name, err)
		}
	}
	return created, nil
}

// check asks for the topics, and for what the user may do with them.
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

// known is what a broker says of topics.
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

// error says what is wrong with a topic.
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

// setting returns a number of a topic's configuration.
func setting(r *kadm.ResourceConfig, name string, otherwise int) int {
	for _, c := range r.Configs {
		if n, err := strconv.Atoi(c.MaybeValue()); c.Key == name && err == nil {
			return n
		}
	}
	return otherwise
}

// mayJoin asks for the offsets of a group, which its members may. Run waits for a group that cannot be asked now.
func mayJoin(ctx context.Context, client *kgo.Client, group string) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if _, err := kadm.NewClient(client).FetchOffsets(ctx, group); errors.Is(err, kerr.GroupAuthorizationFailed) {
		return fmt.Errorf("%w: the user may not read with the group %q: %w", ErrTopology, group, err)
	}
	return nil
}

// limits has the size of the largest batch that each topic takes.
type limits map[string]int32

func (l limits) of(topic string) int32 {
	if n, ok := l[topic]; ok {
		return max(n, 512) // the client takes no less
	}
	return defaultLargest
}
