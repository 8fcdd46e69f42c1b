package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/sqlitestore"
)

// inOutbox runs do with an outbox in a temporary file.
func inOutbox(do func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx], box *outbox.Outbox[*sql.Tx]) error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "everonce-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the example
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // of the example
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	box, err := outbox.New(receiver, nil)
	if err == nil {
		err = box.Migrate(ctx)
	}
	if err == nil {
		err = do(ctx, receiver, box)
	}
	if err != nil {
		fmt.Println(err)
	}
}

// Events of a transaction that is rolled back are never published.
func Example_publish() {
	inOutbox(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx], box *outbox.Outbox[*sql.Tx]) error {
		for _, id := range []string{"e-1", "e-2"} {
			err := receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if err := box.Publish(ctx, tx, outbox.Event{ID: id, Topic: "orders", Payload: []byte(`{}`)}); err != nil {
					return err
				}
				if id == "e-1" {
					return errors.New("the order is refused")
				}
				return nil
			})
			fmt.Println(id, err)
		}
		return relay(ctx, box, outbox.One(1, func(_ context.Context, e *outbox.Event) error {
			fmt.Println(e.ID, "is published")
			return nil
		}), 1)
	})
	// Output:
	// e-1 the order is refused
	// e-2 <nil>
	// e-2 is published
}

// An event that failed for good waits for an operator, and those behind it with the same key wait for it.
func Example_setAside() {
	inOutbox(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx], box *outbox.Outbox[*sql.Tx]) error {
		err := receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return box.Publish(ctx, tx, outbox.Event{ID: "e-1", Topic: "orders", Key: "order-7"}, outbox.Event{ID: "e-2", Topic: "orders", Key: "order-7"})
		})
		if err != nil {
			return err
		}
		aside, refusing := context.WithCancel(ctx)
		r, err := box.Relay(outbox.One(1, func(context.Context, *outbox.Event) error {
			return everonce.Permanent("rejected", errors.New("the receiver has no such order"), nil)
		}), &outbox.RelayOptions{Observe: func(_ context.Context, e *outbox.Event, v outbox.Report) {
			if v.How == outbox.SetAside {
				fmt.Println(e.ID, v.How)
				refusing()
			}
		}})
		if err != nil {
			return err
		}
		if err := r.Run(aside); err != nil {
			return err
		}
		n, err := box.Backlog().Retry(ctx, backlog.Filter{States: []backlog.State{backlog.Blocked}})
		if err != nil {
			return err
		}
		fmt.Println(n, "is tried again")
		return relay(ctx, box, outbox.One(1, func(_ context.Context, e *outbox.Event) error {
			fmt.Println(e.ID, "is published")
			return nil
		}), 2)
	})
	// Output:
	// e-1 set_aside
	// 1 is tried again
	// e-1 is published
	// e-2 is published
}

// Events that were published move into a table of the application's own, in the transaction that removes them.
func Example_archive() {
	inOutbox(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx], box *outbox.Outbox[*sql.Tx]) error {
		err := receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `CREATE TABLE archive (id TEXT PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL)`); err != nil {
				return err
			}
			return box.Publish(ctx, tx, outbox.Event{ID: "e-1", Topic: "orders", Payload: []byte(`{}`)})
		})
		if err != nil {
			return err
		}
		if err := relay(ctx, box, outbox.WriteTo(io.Discard), 1); err != nil {
			return err
		}
		const age = 0 // in production an hour or a day
		n, err := box.Archive(ctx, age, func(ctx context.Context, tx *sql.Tx, events []outbox.Event) error {
			for _, e := range events {
				if _, err := tx.ExecContext(ctx, `INSERT INTO archive (id, topic, payload) VALUES (?, ?, ?)`, e.ID, e.Topic, e.Payload); err != nil {
					return err
				}
			}
			return nil
		})
		fmt.Println(n, "is archived")
		return err
	})
	// Output:
	// 1 is archived
}
