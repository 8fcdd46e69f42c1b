package consume

import (
	"context"
	"errors"
	"time"
)

// Delivery is one delivery of a message, which an adapter passes to [Consumer.Serve]. Serve calls its methods from one
// goroutine at a time, and ends it with exactly one of Ack, Retry and SetAside. Each of them returns nil once the
// broker has confirmed it, and an error that wraps [ErrGone] if the channel of the delivery is closed, so that the
// broker redelivers the message. After any other error Serve calls the same method again, with two exceptions: after a
// SetAside whose error wraps [ErrRefused] it calls Retry, and after a Retry whose error wraps [ErrNoCopy] it calls
// SetAside, with the reason [TooLarge].
type Delivery interface {
	// Message returns the message. Every call returns the same pointer.
	Message() *Message
	// Ack acknowledges the message.
	Ack(ctx context.Context) error
	// Retry has the message delivered again after a delay. If counts is set, it increments [Message.Retries].
	Retry(ctx context.Context, after time.Duration, counts bool) error
	// SetAside puts the message into the dead-letter queue, and then acknowledges it.
	SetAside(ctx context.Context, letter Death) error
}

var (
	// ErrGone says that the channel of a delivery is closed. The broker redelivers the message.
	ErrGone = errors.New("consume: the channel of the delivery is closed")
	// ErrRefused says that the target queue is full or does not exist.
	ErrRefused = errors.New("consume: the queue refuses the message")
	// ErrNoCopy says that the broker will never accept a copy of a message, because it is larger than the broker now
	// allows.
	ErrNoCopy = errors.New("consume: the broker refuses a copy of the message")
)
