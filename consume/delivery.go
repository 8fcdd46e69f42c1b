package consume

import (
	"context"
	"errors"
	"time"
)

// Delivery is one message in the hand of a consumer: what an adapter gives to [Consumer.Serve]. Its methods are
// called by one goroutine at a time, and exactly one of Ack, Retry and Bury ends it. Each returns nil when the
// broker has confirmed it, and an error that wraps [ErrGone] where the broker will deliver the message again by
// itself, because the channel that it came by is gone. After any other error the same method is called again; but Retry after a
// Bury whose error wraps [ErrRefused].
type Delivery interface {
	// Message returns what was delivered, the same at every call.
	Message() *Message
	// Ack tells the broker that it is done.
	Ack(ctx context.Context) error
	// Retry makes it come again after a delay. Where counts is set, [Message.Retries] is one more then.
	Retry(ctx context.Context, after time.Duration, counts bool) error
	// Bury puts it among the dead letters, and then acknowledges it.
	Bury(ctx context.Context, letter DeadLetter) error
}

var (
	// ErrGone is wrapped where a delivery can not be ended any more: the broker delivers the message again.
	ErrGone = errors.New("consume: the channel of this delivery is gone")
	// ErrRefused is wrapped where the broker refuses to put a message into a queue: one that is full, or is not there.
	ErrRefused = errors.New("consume: the queue does not take it")
)
