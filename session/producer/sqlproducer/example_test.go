package sqlproducer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
)

// A batch is sent twice, and is in the stream once. The next grant to the name fences this run.
func ExampleStore_Append() {
	ctx := context.Background()
	receiver := receiverOfYourStore() // on store/pgxstore, store/mysqlstore or store/sqlitestore
	store, err := sqlproducer.New(receiver, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := errors.Join(store.Migrate(ctx), store.CreateStream(ctx, "orders")); err != nil {
		fmt.Println(err)
		return
	}

	grant, err := store.InitProducer(ctx, "billing") // under which nothing of an earlier run may be sent again
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := &sqlproducer.Batch{
		Stream: "orders", Producer: grant.Producer, Epoch: grant.Epoch,
		First: 0, Records: [][]byte{[]byte("order 1"), []byte("order 2")},
	}
	for range 2 {
		answer, err := store.Append(ctx, batch)
		switch {
		case err != nil:
			fmt.Println("send it again:", err)
		case answer.Err == producer.ErrOutOfOrder:
			fmt.Println("send what is before it in this epoch, from", answer.Expected)
		case answer.Err == producer.ErrTooOld:
			fmt.Println("acknowledged before")
		case answer.Err != 0:
			fmt.Println("give up:", answer.Err)
		default:
			fmt.Println("acknowledged at", answer.Position, answer.Duplicate)
		}
	}
}

// A request has batches for several streams, and an effect of the application: all of it commits together.
func ExampleStore_AppendTx() {
	ctx := context.Background()
	receiver := receiverOfYourStore()
	store, err := sqlproducer.New(receiver, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var batches []*sqlproducer.Batch // ordered by their streams
	answers := make([]producer.Decision, len(batches))
	err = receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		fresh := false
		for i, batch := range batches {
			var err error
			if answers[i], err = store.AppendTx(ctx, tx, batch); err != nil {
				return err // a refusal too: nothing is committed
			}
			fresh = fresh || !answers[i].Duplicate
		}
		if !fresh { // the request came before, and had its effect
			return nil
		}
		_, err := tx.ExecContext(ctx, "UPDATE ingest SET requests = requests + 1")
		return err
	})
	if err == nil { // now they may be acknowledged
		fmt.Println(answers)
	}
}

// A reader goes on from its position, and misses nothing.
func ExampleStore_Read() {
	ctx := context.Background()
	store, err := sqlproducer.New(receiverOfYourStore(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	position := int64(0) // kept by the reader
	for range time.Tick(time.Second) {
		records, err := store.Read(ctx, "orders", position, 500)
		if errors.Is(err, sqlproducer.ErrTruncated) { // it was away for too long
			position, _, err = store.Bounds(ctx, "orders")
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, r := range records {
			fmt.Println(r.Position, string(r.Value))
			position = r.Position + 1
		}
	}
}

// Old records and idle producers are removed now and then, by any process.
func ExampleStore_Purge() {
	ctx := context.Background()
	store, err := sqlproducer.New(receiverOfYourStore(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range time.Tick(time.Minute) {
		_, err := store.Expire(ctx, "orders", 7*24*time.Hour, 10_000)
		if err == nil {
			_, err = store.Purge(ctx, 7*24*time.Hour, 10_000)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
}

func receiverOfYourStore() *everonce.TxReceiver[*sql.Tx] { return nil }
