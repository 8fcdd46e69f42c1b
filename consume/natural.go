package consume

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

// NaturalSpec says what a consumer does with its messages, whose payload is a T, if the effect is idempotent by
// itself (natural mode). The zero value of each field that is not required is its default.
type NaturalSpec[T any] struct {
	// Consumer names who handles the messages. Required.
	Consumer string
	// Key finds the key, by which dead letters and logs name the message. It must be what makes the effect
	// idempotent. Required.
	Key Key
	// Handle handles a message, and reports whether this delivery took effect (true) or an earlier one had. Its
	// errors: [everonce.Permanent] is a refusal for good. An error that wraps [everonce.ErrStore] is about the place
	// of the effects and not about this message, which is kept in hand while that lasts. After any other error the
	// message is tried again. Required.
	Handle func(ctx context.Context, m *Message, v T) (effect bool, err error)

	// Decode reads the payload. Its error makes the message a dead letter. Default: JSON, without content encoding,
	// or one that changes nothing: identity, utf-8. A body null is an error unless a T can be that: a pointer, say.
	Decode func(*Message) (T, error)
	// MaxBody is the largest body that is read, in bytes. Default 16 MiB.
	MaxBody int
	// Retry says when a message that failed comes again.
	Retry Backoff
	// DropRejected acknowledges what was refused for good. Default: it becomes a dead letter, at every delivery.
	DropRejected bool
	// Observe, if set, is called with every verdict. It must not block. A panic of it is logged, and changes nothing.
	// [Consumer.Serve] calls it in a goroutine of its own, which it may end.
	Observe func(context.Context, *Message, Verdict)
}

// NewNatural returns a consumer for handlers that may run any number of times: an insert under a unique index, a set,
// a delete. No record is kept: a message takes effect once because of the effect's own shape, for as long as that
// lasts. So nothing is replayed, two deliveries of one message may be handled at the same time, and another message
// under a known key cannot be told from a duplicate. The outcome is executed, or replayed if the handler says that an
// earlier delivery took effect. The error wraps [everonce.ErrInvalidArgument] and says what is missing or wrong.
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
	c, err := newConsumer(common)
	if err != nil {
		return nil, err
	}
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
