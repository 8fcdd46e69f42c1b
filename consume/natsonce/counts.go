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

// countOf reads the count of a message. That there is none is no error; what cannot be read is: a count that began anew would never end.
func countOf(ctx context.Context, bucket jetstream.KeyValue, at *jetstream.MsgMetadata) (c count, err error) {
	if at.NumDelivered <= 1 {
		return c, nil
	}
	entry, err := bucket.Get(ctx, nameOf(at))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, nil
	}
	if err == nil {
		_, err = fmt.Sscanf(string(entry.Value()), "%d %d", &c.retries, &c.answered)
	}
	if err != nil {
		err = fmt.Errorf("natsonce: reading the retries of a message: %w", err)
	}
	return c, err
}

func (c count) write(ctx context.Context, bucket jetstream.KeyValue, at *jetstream.MsgMetadata) error {
	if _, err := bucket.Put(ctx, nameOf(at), fmt.Appendf(nil, "%d %d", c.retries, c.answered)); err != nil {
		return fmt.Errorf("natsonce: counting a retry: %w", err)
	}
	return nil
}
