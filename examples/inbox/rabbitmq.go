package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/inbox"
)

// fromRabbitMQ feeds an inbox from a queue: a message is acknowledged when it is in the table.
func fromRabbitMQ(ctx context.Context, broker, queue string, receiver *everonce.TxReceiver[pgx.Tx]) (*rabbitonce.Consumer, error) {
	in, err := inbox.New(receiver, "billing", nil)
	if err != nil {
		return nil, err
	}
	consumer, err := in.Consumer()
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(ctx, broker, rabbitonce.Queue{Name: queue}, consumer, nil)
}

var _ = fromRabbitMQ
