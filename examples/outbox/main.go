// Command outbox places orders and tells others of them: an event commits with its order, or not at all, and a relay
// publishes it afterwards. By default it goes to a consumer in this process, which writes an invoice; -to sends it
// elsewhere.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Order is what is placed, and what the event says of it.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// place takes an order, once. The order, its event, and the record that it was placed are one commit.
func place(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx], box *outbox.Outbox[*sql.Tx], o Order) (everonce.Result[string], error) {
	key := everonce.Key{Scope: everonce.ScopeOf("shop", "place"), ID: o.ID}
	return everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, cents) VALUES (?, ?)`, o.ID, o.Cents); err != nil {
			return "", err
		}
		body, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		if err := box.Publish(ctx, tx, outbox.Event{Topic: "orders", Key: o.ID, Type: "order.placed", Payload: body}); err != nil {
			return "", err
		}
		if o.Cents > 5000 { // the event is rolled back with the order
			return "", everonce.Permanent("too_expensive", errors.New("the amount is over the limit"), nil)
		}
		return o.ID, nil
	}, everonce.FingerprintOf(o.Cents))
}

// billing writes an invoice for each order. It knows an event that is published again by its ID.
func billing(receiver *everonce.TxReceiver[*sql.Tx]) (*consume.Consumer, error) {
	return consume.NewTx(receiver, consume.TxSpec[Order, *sql.Tx]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(ctx context.Context, tx *sql.Tx, _ *consume.Message, o Order) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO invoice (order_id, cents) VALUES (?, ?)`, o.ID, o.Cents)
			return err
		},
	})
}

// losingAnAnswer publishes, but does not say so the first time, as a relay that dies before it has marked an event.
func losingAnAnswer(to outbox.Publisher, published *int) outbox.Publisher {
	lost := false
	return outbox.One(1, func(ctx context.Context, e *outbox.Event) error {
		if err := errors.Join(to.Publish(ctx, []outbox.Event{*e})...); err != nil {
			return err
		}
		if *published++; !lost {
			lost = true
			return errors.New("the answer is lost")
		}
		return nil
	})
}

func main() {
	to := flag.String("to", "", "where events go: amqp://…, https://…, stdout; by default to a consumer in this process")
	flag.Parse()
	dir, err := os.MkdirTemp("", "everonce-outbox-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "shop.db"), *to)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file, to string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	for _, text := range []string{
		`CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)`,
		`CREATE TABLE invoice (order_id TEXT NOT NULL, cents INTEGER NOT NULL)`,
	} {
		if _, err := store.DB().ExecContext(ctx, text); err != nil {
			return err
		}
	}
	box, err := outbox.New(receiver, nil)
	if err != nil {
		return err
	}
	if err := box.Migrate(ctx); err != nil {
		return err
	}
	orders := 0
	for _, o := range []Order{{"order-1", 1200}, {"order-1", 1200}, {"order-2", 9900}, {"order-3", 800}} {
		res, err := place(ctx, receiver, box, o)
		if _, rejected := errors.AsType[*everonce.PermanentError](err); err != nil && !rejected {
			return err
		}
		if res.Outcome == everonce.Executed {
			orders++
		}
		fmt.Fprintf(out, "%s: %v\n", o.ID, res.Outcome)
	}

	next, closing, err := destination(out, to, receiver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	published := 0
	if err := relay(ctx, box, losingAnAnswer(next, &published), orders); err != nil {
		return err
	}
	var invoices, cents int
	if err := store.DB().QueryRowContext(ctx, `SELECT count(*), coalesce(sum(cents), 0) FROM invoice`).Scan(&invoices, &cents); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders, published %d times: %d invoices of %d cents\n", orders, published, invoices, cents)
	return nil
}

// relay publishes until so many events are published. A service runs it until it ends.
func relay(ctx context.Context, box *outbox.Outbox[*sql.Tx], to outbox.Publisher, events int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	left := make(chan struct{}, events)
	r, err := box.Relay(to, &outbox.RelayOptions{Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) {
		if v.How == outbox.Published {
			left <- struct{}{}
		}
	}})
	if err != nil {
		return err
	}
	go func() {
		for range events {
			<-left
		}
		stop()
	}()
	return r.Run(ctx)
}
