package natsonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// count is what the bucket knows of a message.
type count struct {
	retries  int // that count towards the limit
	answered int // the number of the last delivery that was answered: those after it ended without a word
}

// nameOf names a message of a consumer. The time tells it from one of a stream that was made anew.
func nameOf(at *jetstream.MsgMetadata) string {
	return fmt.Sprintf("%s.%s.%d-%d", at.Stream, at.Consumer, at.Sequence.Stream, at.Timestamp.UnixNano())
}

// countOf reads the count of a message. One that cannot be reached is an error: a message without its count would be retried for ever, or be taken
// for one that nobody lives to answer. A message that was delivered before, and has none, gets one: its last delivery ended without a word, and what
// was before that is not known, because a bucket may be lost or made anew.
func countOf(ctx context.Context, bucket jetstream.KeyValue, at *jetstream.MsgMetadata) (c count, err error) {
	if at.NumDelivered <= 1 {
		return c, nil
	}
	entry, err := bucket.Get(ctx, nameOf(at))
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, fmt.Errorf("natsonce: reading the retries of a message: %w", err)
	}
	if err == nil {
		if _, err = fmt.Sscanf(string(entry.Value()), "%d %d", &c.retries, &c.answered); err == nil {
			return c, nil
		}
	}
	c = count{answered: int(at.NumDelivered) - 2} //nolint:gosec // it is a count of deliveries
	return c, c.write(ctx, bucket, at)
}

func (c count) write(ctx context.Context, bucket jetstream.KeyValue, at *jetstream.MsgMetadata) error {
	if _, err := bucket.Put(ctx, nameOf(at), fmt.Appendf(nil, "%d %d", c.retries, c.answered)); err != nil {
		return fmt.Errorf("natsonce: counting a retry: %w", err)
	}
	return nil
}
