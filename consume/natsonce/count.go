package natsonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// count is the value of a message in the bucket.
type count struct {
	retries  int // retries that count towards the limit
	answered int // number of the last answered delivery; later deliveries ended without an answer
}

// nameOf returns the name of a message of a consumer. It includes the time, to distinguish a stream that was created
// anew.
func nameOf(at *jetstream.MsgMetadata) string {
	return fmt.Sprintf("%s.%s.%d-%d", at.Stream, at.Consumer, at.Sequence.Stream, at.Timestamp.UnixNano())
}

// countOf reads the count of a message. It returns an error if the bucket cannot be read: without its count, a message
// would be retried for ever, or would seem to end without an answer. A redelivered message without a count gets one:
// its last delivery ended without an answer, and earlier deliveries are not known, because a bucket may be lost or
// created anew.
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
