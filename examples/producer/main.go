// Command producer sends orders to a log in which each is once, however often it is run or killed.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
	"github.com/everonce/everonce/store/sqlitestore"
)

func main() {
	ctx := context.Background()
	file, err := sqlitestore.Open(ctx, "log.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewTxReceiver(file, nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := sqlproducer.New(receiver, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(store.Migrate(ctx), store.CreateStream(ctx, "orders")); err != nil {
		log.Fatal(err)
	}
	grant, err := granted(ctx, file.DB(), store) // a producer elsewhere has a separate database
	if err != nil {
		log.Fatal(err)
	}
	var orders []string // the producer's own, which do not change: here they are made up
	for i := range 7 {
		orders = append(orders, fmt.Sprint("order ", i))
	}
	if err := send(ctx, store, grant, orders); err != nil {
		log.Fatal(err)
	}
}

// granted returns the grant that the first run has kept.
func granted(ctx context.Context, own *sql.DB, store *sqlproducer.Store[*sql.Tx]) (g producer.Grant, err error) {
	if _, err := own.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS billing (one INTEGER PRIMARY KEY, id INTEGER, epoch INTEGER)"); err != nil {
		return g, err
	}
	err = own.QueryRowContext(ctx, "SELECT id, epoch FROM billing").Scan(&g.Producer, &g.Epoch)
	if errors.Is(err, sql.ErrNoRows) { // the first run
		if g, err = store.InitProducer(ctx, ""); err == nil {
			_, err = own.ExecContext(ctx, "INSERT INTO billing (one, id, epoch) VALUES (1, ?, ?)", g.Producer, g.Epoch)
		}
	}
	return g, err
}

// send sends all orders: a program with many keeps up to which they were acknowledged. The number of an order is its
// place, in every run.
func send(ctx context.Context, store *sqlproducer.Store[*sql.Tx], g producer.Grant, orders []string) error {
	for i, order := range orders {
		batch := &sqlproducer.Batch{
			Stream: "orders", Producer: g.Producer, Epoch: g.Epoch, First: int32(i), Records: [][]byte{[]byte(order)},
		}
		answer, err := store.Append(ctx, batch)
		switch {
		case err != nil:
			return err // the outcome is unknown: send the same again, in the next run too
		case answer.Err == producer.ErrTooOld:
			fmt.Println(order, "was appended before")
		case answer.Err != 0:
			return answer.Err
		default:
			fmt.Println(order, "is at", answer.Position, answer.Duplicate)
		}
	}
	return nil
}
