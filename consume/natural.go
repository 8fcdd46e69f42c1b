package consume

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

// NaturalSpec configures a consumer of messages with payload T whose effect is already idempotent (natural mode). The
// zero value of each field that is not required is its default.
type NaturalSpec[T any] struct {
	// Consumer is the name of the consumer. Required.
	Consumer string
	// Key returns the key of a message, which dead letters and logs show as a hash. It must be what makes the effect
	// idempotent. Required.
	Key Key
	// Handle handles a message, and reports whether this delivery took effect (true) or an earlier one did.
	// [everonce.Permanent] rejects the message. An error that wraps [everonce.ErrStore] says that the database is down:
	// the message waits until it is back. After any other error the message is retried. Required.
	Handle func(ctx context.Context, m *Message, v T) (effect bool, err error)

	// Decode reads the payload. If it fails, the message becomes a dead letter. Default: JSON, with no content encoding
	// (or identity, or utf-8). The body null is an error unless T can be nil, like a pointer.
	Decode func(*Message) (T, error)
	// MaxBody limits the body, in bytes. Default 16 MiB.
	MaxBody int
	// Retry says when a failed message is retried.
	Retry RetryPolicy
	// DropRejected acknowledges rejected messages. Default: they become dead letters, at every delivery.
	DropRejected bool
	// Context, if set, returns the context for the handler and for Observe, for example with the trace that the message
	// carries. It is called first. A panic is logged and has no other effect.
	Context func(context.Context, *Message) context.Context
	// Observe, if set, is called as [Spec].Observe is.
	Observe func(context.Context, *Message, Decision)
}

// NewNatural returns a consumer for handlers that may run any number of times: an insert with a unique index, a set,
// a delete. It keeps no record: only the effect itself prevents a second one. Two deliveries of one message may be
// handled at the same time, and a different message with a known key counts as a duplicate. The outcome is
// executed, or replayed if the handler returns false. The error wraps [everonce.ErrInvalidArgument].
func NewNatural[T any](spec NaturalSpec[T]) (*Consumer, error) {
	common, err := common[T]{
		Consumer: spec.Consumer, Key: spec.Key, Decode: spec.Decode, MaxBody: spec.MaxBody,
		Retry: spec.Retry, DropRejected: spec.DropRejected, Context: spec.Context, Observe: spec.Observe,
	}.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case spec.Handle == nil:
		return nil, fmt.Errorf("%w: consume: Handle is required", everonce.ErrInvalidArgument)
	}
	c, err := newConsumer(common)
	if err != nil {
		return nil, err
	}
	c.id, c.life = everonce.Key.RecordID, everonce.Lifetime{}
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

// naturally returns the outcome of a handler that may run again.
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
