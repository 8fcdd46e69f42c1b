package consume

import (
	"context"
	"errors"
	"time"
)

// Delivery is one message in the hands of a consumer: what an adapter passes to [Consumer.Serve]. Its methods are
// called by one goroutine at a time, and exactly one of Ack, Retry and Bury ends it. Each returns nil once the broker
// has confirmed it. Each returns an error that wraps [ErrGone] if the broker will deliver the message again by
// itself, because the channel that it came by is gone. After any other error the same method is called again, except
// that after a Bury whose error wraps [ErrRefused] Retry is called, and after a Retry whose error wraps [ErrNoCopy] Bury,
// with the reason [TooLarge].
type Delivery interface {
	// Message returns the message that was delivered, the same one at every call.
	Message() *Message
	// Ack tells the broker that the message is done.
	Ack(ctx context.Context) error
	// Retry makes the message come again after a delay. If counts is set, its [Message.Retries] is then one more.
	Retry(ctx context.Context, after time.Duration, counts bool) error
	// Bury puts the message among the dead letters, and then acknowledges it.
	Bury(ctx context.Context, letter DeadLetter) error
}

var (
	// ErrGone says that a delivery cannot be ended any more: the broker delivers the message again.
	ErrGone = errors.New("consume: the channel of this delivery is gone")
	// ErrRefused says that the broker refuses to put a message into a queue that is full or does not exist.
	ErrRefused = errors.New("consume: the queue does not take it")
	// ErrNoCopy says that the broker takes no copy of a message, however often it is asked: the message is larger than
	// what the broker takes by now.
	ErrNoCopy = errors.New("consume: the broker takes no copy of it")
)
