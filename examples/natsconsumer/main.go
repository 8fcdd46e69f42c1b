// Command natsconsumer handles the orders of a JetStream stream, each once: an invoice in PostgreSQL, which commits
// with the record of its order. It takes DATABASE_URL and BROKER_URL, and runs until it is interrupted.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/pgxstore"
)

type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		err = run(ctx, pool, os.Getenv("BROKER_URL"), "ORDERS")
	}
	if err != nil {
		log.Print(err)
	}
}

// run handles the orders of a stream until ctx ends.
func run(ctx context.Context, pool *pgxpool.Pool, broker, stream string) error {
	store, err := pgxstore.New(pool, nil)
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS invoice (order_id text NOT NULL, cents bigint NOT NULL)`)
	}
	if err != nil {
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
	consumer, err := invoices(ctx, broker, stream, receiver)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return cleaner.Run(ctx) }) // removes expired records
	group.Go(func() error { return consumer.Run(ctx) })
	return group.Wait()
}

// invoices is a consumer with a business row: effect and record are one commit.
func invoices(ctx context.Context, broker, stream string, receiver *everonce.TxReceiver[pgx.Tx]) (*natsonce.Consumer, error) {
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer: "billing",
		Key:      consume.Header("Nats-Msg-Id"),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return natsonce.Dial(ctx, broker, natsonce.Queue{Stream: stream}, handler, nil)
}
