// Command orders books the orders of a RabbitMQ queue in a SQLite file, each once.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Order is what is in a message.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
}

var (
	queue = flag.String("queue", "orders", "the `name` of the queue")
	slow  = flag.Duration("slow", 0, "how long a booking takes")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Arg(0), flag.Arg(1), flag.Arg(2))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run does what is asked for: work, publish ORDER CUSTOMER, customer NAME, or list.
func run(ctx context.Context, command, first, second string) error {
	if command == "publish" {
		return publish(Order{ID: first, Customer: second})
	}
	store, err := sqlitestore.Open(ctx, "orders.db", nil)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // commits are stored
	for _, table := range []string{
		`CREATE TABLE IF NOT EXISTS customer (name TEXT PRIMARY KEY)`,
		`CREATE TABLE IF NOT EXISTS booking (id TEXT, customer TEXT NOT NULL)`,
	} {
		if _, err := store.DB().ExecContext(ctx, table); err != nil {
			return err
		}
	}
	switch command {
	case "work":
		return work(ctx, store)
	case "customer":
		_, err := store.DB().ExecContext(ctx, `INSERT INTO customer VALUES (?)`, first)
		return err
	}
	return list(ctx, store.DB())
}

// work handles the messages of the queue until it is interrupted.
func work(ctx context.Context, store *sqlitestore.Store) error {
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	handler, err := consume.NewTx(receiver, consume.TxSpec[Order, *sql.Tx]{
		Consumer: "booking",
		Key:      consume.ProducerID(),
		Handle:   book,
		Retry:    consume.RetryPolicy{Limit: 2},
		Observe: func(_ context.Context, m *consume.Message, v consume.Decision) {
			log.Println(m.ID, v.Outcome, v.Disposition)
		},
	})
	if err != nil {
		return err
	}
	consumer, err := rabbitonce.Dial(ctx, os.Getenv("BROKER_URL"), rabbitonce.Queue{Name: *queue}, handler, nil)
	if err != nil {
		return err
	}
	log.Println("working")
	return consumer.Run(ctx)
}

// book is the work: what it writes commits with the record of its message.
func book(ctx context.Context, tx *sql.Tx, _ *consume.Message, o Order) error {
	res, err := tx.ExecContext(ctx, `INSERT INTO booking SELECT ?, name FROM customer WHERE name = ?`, o.ID, o.Customer)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return fmt.Errorf("there is no customer %q", o.Customer)
	}
	log.Println(o.ID, "booked, not committed yet")
	time.Sleep(*slow) // time to pull the plug
	return nil
}

// publish sends an order, with its ID as the message's, and returns when it is in the queue.
func publish(o Order) error {
	conn, err := amqp.Dial(os.Getenv("BROKER_URL"))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // confirmed messages are stored
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	body := fmt.Appendf(nil, `{"id":%q,"customer":%q}`, o.ID, o.Customer)
	confirm, err := ch.PublishWithDeferredConfirm("", *queue, true, false, amqp.Publishing{MessageId: o.ID, ContentType: "application/json", Body: body})
	if err != nil {
		return err
	}
	if !confirm.Wait() {
		return fmt.Errorf("the broker has not taken %s", o.ID)
	}
	if len(returned) > 0 { // what is returned is confirmed too
		return fmt.Errorf("there is no queue %s yet, so %s is nowhere: start a worker, and publish it again", *queue, o.ID)
	}
	return nil
}

func list(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT id, customer FROM booking ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says it
	for rows.Next() {
		var o Order
		if err := rows.Scan(&o.ID, &o.Customer); err != nil {
			return err
		}
		fmt.Println(o.ID, o.Customer)
	}
	return rows.Err()
}
