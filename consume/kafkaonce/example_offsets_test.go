package kafkaonce_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// The offsets are in the database of the effects: effect, record and offset are one commit. With pgx the transaction is a pgx.Tx.
func ExampleNewOffsets() {
	invoicing := func(ctx context.Context, url string, receiver *everonce.TxReceiver[*sql.Tx]) error {
		offsets, err := kafkaonce.NewOffsets(receiver)
		if err != nil {
			return err
		}
		if err := offsets.Migrate(ctx); err != nil {
			return err
		}
		handler, err := consume.NewTx(receiver, consume.TxSpec[order, *sql.Tx]{
			Consumer: "billing",
			Key:      consume.ProducerID(),
			Offsets:  offsets,
			Handle: func(ctx context.Context, tx *sql.Tx, _ *consume.Message, o order) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO invoice (order_id) VALUES ($1)`, o.ID)
				return err
			},
		})
		if err != nil {
			return err
		}
		c, err := kafkaonce.Dial(ctx, url, kafkaonce.Topic{Name: "orders"}, handler, nil)
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}

	var receiver *everonce.TxReceiver[*sql.Tx] // everonce.NewTxReceiver of a store of store/pgxstore or store/sqlitestore
	fmt.Println(invoicing(context.Background(), "kafka://localhost:9092", receiver))
	// Output: everonce: invalid argument: kafkaonce: the receiver is nil
}
