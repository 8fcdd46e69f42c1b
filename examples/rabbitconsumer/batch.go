package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// manyInvoices is invoices for a queue with much in it: up to a hundred orders are one statement and one commit.
func manyInvoices(ctx context.Context, broker, queue string, receiver *everonce.TxReceiver[pgx.Tx]) (*rabbitonce.Consumer, error) {
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer:  "billing",
		Key:       consume.ProducerID(),
		HandleAll: insertInvoices,
	})
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(ctx, broker, rabbitonce.Queue{Name: queue}, handler, &rabbitonce.Options{
		Workers: consume.Workers{Batch: 100, Concurrency: 2},
	})
}

func insertInvoices(ctx context.Context, tx pgx.Tx, batch []consume.Received[Order]) error {
	orders, cents := make([]string, len(batch)), make([]int64, len(batch))
	for i, r := range batch {
		orders[i], cents[i] = r.Payload.ID, r.Payload.Cents
	}
	_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) SELECT * FROM unnest($1::text[], $2::bigint[])`, orders, cents)
	return err
}
