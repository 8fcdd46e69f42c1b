package sketches

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce"
)

// Message is one delivery. The key is chosen from ID, headers and body, never from the delivery.
type Message struct {
	ID   string
	Body []byte
}

// Disposition is what becomes of a delivery at the broker.
type Disposition uint8

// The dispositions.
const (
	Ack        Disposition = iota + 1 // done, now or earlier
	Redeliver                         // after the delay
	DeadLetter                        // never by itself again: a person looks at it
)

// Consumer is the receiver's half of a queue.
type Consumer struct {
	Scope everonce.Scope // tenant and consumer's name
	// Skipped is told of every delivery that ran nothing because it was done before: counted, not an error.
	Skipped func(everonce.Outcome)
}

func (c Consumer) key(m Message) everonce.Key { return everonce.Key{Scope: c.Scope, ID: m.ID} }

// Handle runs a guarded handler for one delivery.
func (c Consumer) Handle(ctx context.Context, recv *everonce.Receiver, m Message, handle func(context.Context, *everonce.Attempt, Message) error) (Disposition, time.Duration, error) {
	res, err := everonce.Do(ctx, recv, c.key(m), func(ctx context.Context, a *everonce.Attempt) (struct{}, error) {
		return struct{}{}, handle(ctx, a, m)
	}, everonce.FingerprintOf(m.Body), everonce.WithLifetime(everonce.ForQueue()))
	d, delay := c.dispose(res.Outcome, res.Attempt > 0, err)
	return d, delay, err
}

// HandleTx runs a handler whose effects are in the same database as the record; the message is
// acknowledged after the commit.
func HandleTx[Tx any](ctx context.Context, c Consumer, recv *everonce.TxReceiver[Tx], m Message, handle func(context.Context, Tx, Message) error) (Disposition, time.Duration, error) {
	res, err := everonce.Transact(ctx, recv, c.key(m), func(ctx context.Context, tx Tx) (struct{}, error) {
		return struct{}{}, handle(ctx, tx, m)
	}, everonce.FingerprintOf(m.Body), everonce.WithLifetime(everonce.ForQueue()))
	d, delay := c.dispose(res.Outcome, res.Attempt > 0, err)
	return d, delay, err
}

// dispose maps every outcome. ran tells a failure that was saved now from one that was saved earlier.
func (c Consumer) dispose(o everonce.Outcome, ran bool, err error) (Disposition, time.Duration) {
	switch o {
	case everonce.Executed:
		return Ack, 0
	case everonce.Replayed, everonce.Expired, everonce.Elided:
		c.Skipped(o)
		return Ack, 0
	case everonce.Rejected:
		if !ran { // the first delivery put it there
			c.Skipped(o)
			return Ack, 0
		}
		return DeadLetter, 0
	case everonce.Mismatch, everonce.Unknown, everonce.Invalid:
		return DeadLetter, 0
	default: // failed, in progress, lease lost, not recorded, store error: never acknowledged
		return Redeliver, retryAfter(err)
	}
}

func retryAfter(err error) time.Duration {
	var e *everonce.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return time.Second
}
