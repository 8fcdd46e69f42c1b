package sketches

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
)

// SQL is what the patterns ask of a transaction handle: sqlstore's driver has it for each Tx.
type SQL[Tx any] interface {
	Exec(ctx context.Context, tx Tx, query string, args ...any) (rows int64, err error)
	Query(ctx context.Context, tx Tx, scan func(scan func(dest ...any) error) error, query string, args ...any) error
}

// Event is a message that leaves with the operation's commit. Its ID is stable over every repetition
// of the transaction and every attempt, so that its consumers can tell its duplicates.
type Event struct {
	ID    string
	Topic string
	Body  []byte
}

// Outbox writes events into the transaction of the effect and its record, and publishes them afterwards.
type Outbox[Tx any] struct {
	DB   SQL[Tx]
	Recv *everonce.TxReceiver[Tx]
}

// Append adds an event to the transaction of the operation that runs in ctx.
func (o Outbox[Tx]) Append(ctx context.Context, tx Tx, topic string, body []byte) error {
	a, ok := everonce.AttemptFrom(ctx)
	if !ok {
		return fmt.Errorf("outbox: %w: the context is of no attempt", everonce.ErrInvalidArgument)
	}
	_, err := o.DB.Exec(ctx, tx, `INSERT INTO outbox (id, topic, body) VALUES (?, ?, ?)`, a.DownstreamKey("event:"+topic), topic, body)
	return err
}

// PlaceOrder is effect + record + outgoing event in one commit.
func (o Outbox[Tx]) PlaceOrder(ctx context.Context, key everonce.Key, order []byte) (everonce.Result[string], error) {
	return everonce.Transact(ctx, o.Recv, key, func(ctx context.Context, tx Tx) (string, error) {
		if _, err := o.DB.Exec(ctx, tx, `INSERT INTO orders (id, body) VALUES (?, ?)`, key.ID, order); err != nil {
			return "", err
		}
		return key.ID, o.Append(ctx, tx, "order-placed", order)
	}, everonce.FingerprintOf(order))
}

// Relay publishes one batch: rows are locked by this transaction, published, and marked by its commit.
// A commit that fails publishes them again, under the same IDs.
func (o Outbox[Tx]) Relay(ctx context.Context, publish func(context.Context, []Event) error) (int, error) {
	var n int
	err := o.Recv.InTx(ctx, func(ctx context.Context, tx Tx) error {
		var batch []Event
		err := o.DB.Query(ctx, tx, func(scan func(...any) error) error {
			var e Event
			batch = append(batch, e)
			return scan(&batch[len(batch)-1].ID, &batch[len(batch)-1].Topic, &batch[len(batch)-1].Body)
		}, `SELECT id, topic, body FROM outbox WHERE published_at IS NULL ORDER BY seq LIMIT 100 FOR UPDATE SKIP LOCKED`)
		if err != nil || len(batch) == 0 {
			return err
		}
		if err := publish(ctx, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if _, err := o.DB.Exec(ctx, tx, `UPDATE outbox SET published_at = clock_timestamp() WHERE id = ?`, e.ID); err != nil {
				return err
			}
		}
		n = len(batch)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
