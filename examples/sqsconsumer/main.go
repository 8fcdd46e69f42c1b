// Command sqsconsumer handles the orders of an SQS queue, each once: an invoice in PostgreSQL, which commits with the
// record of its order. It takes DATABASE_URL, QUEUE and the configuration of AWS, and runs until it is interrupted.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/pgxstore"
)

type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("QUEUE"))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run handles the orders of a queue until ctx ends.
func run(ctx context.Context, database, queue string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pool, nil)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS invoice (order_id text NOT NULL, cents bigint NOT NULL)`); err != nil {
		return err
	}
	cleaner, err := janitor.New(store, nil)
	if err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	consumer, err := invoices(ctx, sqs.NewFromConfig(cfg), queue, receiver)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return cleaner.Run(ctx) }) // removes expired records
	group.Go(func() error { return consumer.Run(ctx) })
	return group.Wait()
}

// invoices is a consumer with a business row: effect and record are one commit.
func invoices(ctx context.Context, client sqsonce.Client, queue string, receiver *everonce.TxReceiver[pgx.Tx]) (*sqsonce.Consumer, error) {
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer: "billing",
		Key:      consume.JSONPointer("/id"),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return sqsonce.Dial(ctx, client, sqsonce.Queue{Name: queue}, handler, nil)
}
