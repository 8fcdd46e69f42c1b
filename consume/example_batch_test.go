package consume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// A batch is one transaction. The database is a fake: with PostgreSQL the receiver uses a pgxstore, and HandleAll runs
// one INSERT of many rows. An adapter collects the batches: [consume.Workers].Batch.
func ExampleConsumer_HandleBatch() {
	db := newLedger()
	receiver, err := everonce.NewTxReceiver[*ledgerTx](db, nil)
	if err != nil {
		panic(err)
	}
	type deposit struct{ Account string }
	c, err := consume.NewTx(receiver, consume.TxSpec[deposit, *ledgerTx]{
		Consumer: "deposits",
		Key:      consume.ProducerID(),
		HandleAll: func(_ context.Context, tx *ledgerTx, batch []consume.Received[deposit]) error {
			for _, r := range batch {
				if r.Payload.Account == "" {
					return everonce.Permanent("no_account", errors.New("a deposit names its account"), nil)
				}
				if err := tx.Add(r.Payload.Account); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	batch := []*consume.Message{
		{ID: "m-1", Body: []byte(`{"Account":"alice"}`)},
		{ID: "m-2", Body: []byte(`{}`)},
		{ID: "m-3", Body: []byte(`{"Account":"alice"}`)},
		{ID: "m-1", Body: []byte(`{"Account":"alice"}`)},
	}
	for i, v := range c.HandleBatch(context.Background(), batch) {
		fmt.Println(batch[i].ID, v.Disposition, v.Outcome)
	}
	fmt.Println("alice has", db.row("alice"))
	// Output:
	// m-1 ack executed
	// m-2 set_aside rejected
	// m-3 ack executed
	// m-1 ack replayed
	// alice has 2
}
