package kafkaonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce/consume"
)

// DeadLetters shows, replays and discards the dead letters of a topic. Its methods must not be called concurrently.
//
// Each of them reads the whole dead-letter topic twice: a dead letter exists until a tombstone with its ID follows. A
// call does not see dead letters that arrive after its start. Others see the same dead letters, and could replay them
// too; the copies have the same key.
type DeadLetters struct {
	topic         Topic
	url           string
	opts          []kgo.Opt
	client, alone *kgo.Client // produce
	forgotten     forgotten
}

var _ consume.DeadLetters = (*DeadLetters)(nil)

// DialDeadLetters connects to a broker and checks that the dead-letter topic exists; it creates nothing. It uses
// topic.Name, topic.DeadLetters and opts.Client. url is as for [Dial], and opts may be nil. The error wraps
// [everonce.ErrInvalidArgument], [ErrUnreachable] or [ErrTopology].
func DialDeadLetters(ctx context.Context, url string, topic Topic, opts *Options) (*DeadLetters, error) {
	t, err := topic.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &DeadLetters{topic: t, url: url}
	if opts != nil {
		l.opts = opts.Client
	}
	// A tombstone must go to the partition of its dead letter.
	keyed := kgo.StickyKeyPartitioner(nil)
	partitioner := kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		byKey := keyed.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if topic == t.DeadLetters {
				return int(r.Partition)
			}
			return byKey.Partition(r, n)
		}
	})
	if l.alone, err = newAlone(url, append([]kgo.Opt{dense()}, l.opts...)); err != nil {
		return nil, err
	}
	if l.client, err = newClient(url, l.opts, []kgo.Opt{kgo.RecordPartitioner(partitioner)}); err != nil {
		l.alone.Close()
		return nil, err
	}
	if err = reach(ctx, l.client); err == nil {
		err = need{t.DeadLetters: {kmsg.ACLOperationRead}}.check(ctx, l.client)
	}
	if err != nil {
		l.Close() //nolint:errcheck // it has none
		return nil, err
	}
	return l, nil
}

// Close closes the connection.
func (l *DeadLetters) Close() error {
	l.client.Close()
	l.alone.Close()
	return nil
}

// Consumers returns 0: Kafka does not hide dead letters.
func (l *DeadLetters) Consumers(context.Context) (int, error) { return 0, nil }

// All returns an iterator over the selected dead letters, and removes none. It ends with the first error.
func (l *DeadLetters) All(ctx context.Context, filter consume.Filter) iter.Seq2[consume.DeadLetter, error] {
	return func(yield func(consume.DeadLetter, error) bool) {
		err := l.each(ctx, filter, func(letter *consume.DeadLetter, _ *kgo.Record) error {
			if !yield(*letter, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(consume.DeadLetter{}, err)
		}
	}
}

var errEnough = errors.New("kafkaonce: enough")

// Replay produces copies of the selected dead letters to their topics, with the original record key and headers, zero
// retries, and the number of replays ([consume.DeadLetter.Replays]). It removes each dead letter once its copy is in
// the topic. If the message was already handled, the copy is a duplicate. Replay returns the number of replayed dead
// letters. The error also names dead letters that were not replayed because their topic does not exist or refuses
// them, or because they have no body. An interrupted replay may leave a dead letter beside its copy.
func (l *DeadLetters) Replay(ctx context.Context, filter consume.Filter) (replayed int, err error) {
	var failed error
	err = l.each(ctx, filter, func(letter *consume.DeadLetter, r *kgo.Record) error {
		err := errOmitted
		if !has(r, headerOmitted) {
			err = l.forgotten.produce(l.client, l.alone, replayCopy(r)).wait(ctx)
		}
		if errors.Is(err, errOmitted) || errors.Is(err, kerr.UnknownTopicOrPartition) || isRefusal(err) || errors.Is(err, kerr.TopicAuthorizationFailed) {
			failed = errors.Join(failed, fmt.Errorf("kafkaonce: dead letter %s was not replayed to topic %q: %w", letter.ID, letter.Queue, err))
			return nil
		}
		if err == nil {
			err = l.remove(ctx, r)
		}
		if err == nil {
			replayed++
		}
		return err
	})
	return replayed, errors.Join(err, failed)
}

var errOmitted = errors.New("kafkaonce: the dead letter has no body, which was too large (read it at the offset that the detail names, and produce it again)")

// Discard deletes the selected dead letters and returns their number.
func (l *DeadLetters) Discard(ctx context.Context, filter consume.Filter) (discarded int, err error) {
	err = l.each(ctx, filter, func(_ *consume.DeadLetter, r *kgo.Record) error {
		err := l.remove(ctx, r)
		if err == nil {
			discarded++
		}
		return err
	})
	return discarded, err
}

func (l *DeadLetters) remove(ctx context.Context, r *kgo.Record) error {
	return l.forgotten.produce(l.client, nil, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key}).wait(ctx)
}

// each calls fn for each selected dead letter. It reads the topic once to find which dead letters exist, and once more
// for fn, so that memory holds one of them at a time.
func (l *DeadLetters) each(ctx context.Context, filter consume.Filter, fn func(*consume.DeadLetter, *kgo.Record) error) error {
	if err := filter.Validate(); err != nil {
		return err
	}
	admin := kadm.NewClient(l.client)
	first, err := admin.ListStartOffsets(ctx, l.topic.DeadLetters)
	if err = cmp.Or(err, first.Error()); err != nil {
		return fmt.Errorf("kafkaonce: topic %q: %w", l.topic.DeadLetters, err)
	}
	end, err := admin.ListCommittedOffsets(ctx, l.topic.DeadLetters)
	if err = cmp.Or(err, end.Error()); err != nil {
		return fmt.Errorf("kafkaonce: topic %q: %w", l.topic.DeadLetters, err)
	}
	newest := map[string]int64{} // the offset of the newest record of each dead letter
	if err := l.scan(ctx, first, end, func(r *kgo.Record) error {
		if newest[string(r.Key)] = r.Offset; r.Value == nil {
			delete(newest, string(r.Key))
		}
		return nil
	}); err != nil {
		return err
	}
	meant := 0
	err = l.scan(ctx, first, end, func(r *kgo.Record) error {
		at, ok := newest[string(r.Key)]
		if !ok || at != r.Offset {
			return nil
		}
		letter, ok := deadLetterOf(r)
		if !ok || !filter.Matches(&letter) {
			return nil
		}
		if err := fn(&letter, r); err != nil {
			return err
		}
		if meant++; meant == filter.Limit {
			return errLimit
		}
		return nil
	})
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

var errLimit = errors.New("kafkaonce: limit reached")

var errUnanswered = errors.New("kafkaonce: the broker did not answer (the partition may have no leader)")

// scan reads the topic from the offsets first to the offsets end.
func (l *DeadLetters) scan(ctx context.Context, first, end kadm.ListedOffsets, fn func(*kgo.Record) error) error {
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	first.Each(func(o kadm.ListedOffset) {
		if last, ok := end.Lookup(o.Topic, o.Partition); ok && last.Offset > o.Offset {
			from[o.Partition] = kgo.NewOffset().At(o.Offset)
			left[o.Partition] = last.Offset
		}
	})
	if len(from) == 0 {
		return nil
	}
	client, err := newClient(l.url, l.opts, []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic.DeadLetters: from}), kgo.FetchMaxWait(fetchWait),
		kgo.KeepControlRecords(), // the end of a transaction may be the last record
	})
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for len(left) > 0 {
		polling, cancel := context.WithTimeout(ctx, connectTimeout)
		fetches := client.PollRecords(polling, 100)
		cancel()
		if err := fetches.Err(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				err = errUnanswered
			}
			return fmt.Errorf("kafkaonce: reading topic %q: %w", l.topic.DeadLetters, err)
		}
		for r := range fetches.RecordsAll() {
			end, ok := left[r.Partition]
			if !ok || r.Offset >= end {
				continue
			}
			if !r.Attrs.IsControl() {
				if err := fn(r); err != nil {
					return err
				}
			}
			if r.Offset == end-1 {
				delete(left, r.Partition)
			}
		}
	}
	return nil
}
