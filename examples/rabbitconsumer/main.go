// Command rabbitconsumer handles the orders of a RabbitMQ queue, each once: an invoice in PostgreSQL, which commits
// with the record of its order, and a mail by a service that is elsewhere. It takes DATABASE_URL and BROKER_URL, and runs
// until it is interrupted.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
)

type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// invoices is a consumer with a business row: effect and record are one commit.
func invoices(broker, queue string, receiver *everonce.TxReceiver[pgx.Tx]) (*rabbitonce.Consumer, error) {
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(broker, rabbitonce.Queue{Name: queue}, handler, nil)
}

// mails is a consumer whose effect is elsewhere: what happens when nobody knows whether a mail was sent is the
// receiver's policy.
func mails(broker, queue string, receiver *everonce.Receiver, send func(ctx context.Context, to, reference string) error) (*rabbitonce.Consumer, error) {
	handler, err := consume.New(receiver, consume.Spec[Order]{
		Consumer: "mail",
		Key:      consume.ProducerID(),
		Handle: func(ctx context.Context, m *consume.Message, o Order) error {
			attempt, _ := everonce.AttemptFrom(ctx)
			err := send(ctx, o.Customer, attempt.DownstreamKey("mail"))
			if errors.Is(err, errNoSuchCustomer) {
				return everonce.Permanent("no_such_customer", err, nil)
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(broker, rabbitonce.Queue{Name: queue}, handler, nil)
}

var errNoSuchCustomer = errors.New("there is no such customer")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("BROKER_URL"), "orders", printed)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// printed stands for a mail service.
func printed(_ context.Context, to, reference string) error {
	log.Printf("a mail to %s, reference %s", to, reference)
	return nil
}

// run runs both consumers until ctx ends. Each has a queue of its own; a publisher's exchange feeds both.
func run(ctx context.Context, database, broker, queue string, send func(ctx context.Context, to, reference string) error) error {
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
	transactional, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	guarded, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	billing, err := invoices(broker, queue+".billing", transactional)
	if err != nil {
		return err
	}
	mail, err := mails(broker, queue+".mail", guarded, send)
	if err != nil {
		return errors.Join(err, billing.Close())
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = billing.Run(ctx) })
	wg.Go(func() { errs[1] = mail.Run(ctx) })
	wg.Wait()
	return errors.Join(errs[:]...)
}
