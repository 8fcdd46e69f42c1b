package consume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// The handler's writes commit with the record of its message. The database is a fake: with PostgreSQL the receiver
// uses a pgxstore, and the transaction is a pgx.Tx. An adapter, such as consume/rabbitonce, calls Handle for each
// delivery.
func ExampleNewTx() {
	db := newLedger()
	receiver, err := everonce.NewTxReceiver[*ledgerTx](db, nil)
	if err != nil {
		panic(err)
	}
	early := true
	type deposit struct{ Account string }
	c, err := consume.NewTx(receiver, consume.TxSpec[deposit, *ledgerTx]{
		Consumer: "deposits",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, tx *ledgerTx, _ *consume.Message, d deposit) error {
			if err := tx.Add(d.Account); err != nil {
				return err
			}
			if early {
				return errors.New("the rates have not arrived yet") // rolls back what was added
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	m := &consume.Message{ID: "m-1", Body: []byte(`{"Account":"alice"}`)}
	for range 3 { // the broker delivers it until it is acknowledged, and once more
		v := c.Handle(context.Background(), m)
		fmt.Println(v.Disposition, v.Outcome)
		early = false
	}
	fmt.Println("alice has", db.row("alice"))
	// Output:
	// retry failed
	// ack executed
	// ack replayed
	// alice has 1
}
