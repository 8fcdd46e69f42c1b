package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// withOffsets is the consumer of invoices whose offsets are in the database too: effect, record and offset are one
// commit.
func withOffsets(ctx context.Context, broker, topic string, receiver *everonce.TxReceiver[pgx.Tx]) (*kafkaonce.Consumer, error) {
	offsets, err := kafkaonce.NewOffsets(receiver)
	if err != nil {
		return nil, err
	}
	if err := offsets.Migrate(ctx); err != nil {
		return nil, err
	}
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Offsets:  offsets,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return kafkaonce.Dial(ctx, broker, kafkaonce.Topic{Name: topic}, handler, nil)
}
