package consume

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

// NaturalSpec says what a consumer does with its messages, whose payload is a T, where the effect is idempotent by
// itself (natural mode). The zero value of each field that is not required is its default.
type NaturalSpec[T any] struct {
	// Consumer names who handles the messages. Required.
	Consumer string
	// Key finds the key, by which dead letters and logs name the message. It has to be what the effect is idempotent by.
	// Required.
	Key Key
	// Handle handles a message, and says whether this delivery took effect, or an earlier one had. Its errors:
	// [everonce.Permanent] is a refusal for good; what wraps [everonce.ErrStore] is of the place where the effects are, and
	// not of this message, which is kept in hand while that lasts; after any other the message is tried again. Required.
	Handle func(ctx context.Context, m *Message, v T) (effect bool, err error)

	// Decode reads the payload. Its error makes the message a dead letter. Default: JSON, without content encoding, or one that changes
	// nothing: identity, utf-8.
	Decode func(*Message) (T, error)
	// MaxBody is the largest body that is looked at, in bytes. Default 16 MiB.
	MaxBody int
	// Retry says when a message that failed comes again.
	Retry Backoff
	// DropRejected acknowledges what was refused for good. Default: it becomes a dead letter, at every delivery.
	DropRejected bool
	// Observe, if set, is told of every verdict. It must not block; a panic of it is logged, and changes nothing. [Consumer.Serve] calls
	// it in a goroutine of its own, which it may end.
	Observe func(context.Context, *Message, Verdict)
}

// NewNatural returns a consumer for handlers that may run any number of times: an insert under a unique index, a set,
// a delete. No record is kept of them: what makes a message take effect once is the effect's own shape, for as long
// as that lasts. So nothing is replayed, two deliveries of one message may be handled at the same time, and another message
// under a known key is not told from a duplicate. The outcome is executed, or replayed where the handler says that an earlier
// delivery took effect. The error wraps [everonce.ErrInvalidArgument] and says what is missing or wrong.
func NewNatural[T any](spec NaturalSpec[T]) (*Consumer, error) {
	common, err := common[T]{
		Consumer: spec.Consumer, Key: spec.Key, Decode: spec.Decode, MaxBody: spec.MaxBody,
		Retry: spec.Retry, DropRejected: spec.DropRejected, Observe: spec.Observe,
	}.checked()
	switch {
	case err != nil:
		return nil, err
	case spec.Handle == nil:
		return nil, fmt.Errorf("%w: the handler is nil", everonce.ErrInvalidArgument)
	}
	c := newConsumer(common)
	c.id = everonce.Key.RecordID
	c.prepare = decodes(common.Decode, func(m *Message, v T) work {
		return func(ctx context.Context, _ everonce.Key, _ everonce.Fingerprint) (everonce.Outcome, int, error) {
			if ctx.Err() != nil {
				return everonce.Failed, 0, context.Cause(ctx)
			}
			effect, err := spec.Handle(ctx, m, v)
			return naturally(effect, err), 1, err
		}
	})
	return c, nil
}

// naturally is the outcome of a handler that may run again.
func naturally(effect bool, err error) everonce.Outcome {
	if err == nil {
		if effect {
			return everonce.Executed
		}
		return everonce.Replayed
	}
	if _, ok := errors.AsType[*everonce.PermanentError](err); ok {
		return everonce.Rejected
	}
	if errors.Is(err, everonce.ErrStore) {
		return everonce.StoreFailed
	}
	return everonce.Failed
}
