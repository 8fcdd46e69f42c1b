// Command inbox takes messages in, and works on them afterwards: a message is a row that is inserted once, and a worker
// handles it in a transaction with its effects.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Order is what a message says.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// messages are the deliveries of a broker: one twice, one that cannot be read, one of an unknown type.
var messages = []consume.Message{
	{ID: "m-1", Subject: "order.placed", Body: []byte(`{"id":"order-1","cents":1200}`)},
	{ID: "m-1", Subject: "order.placed", Body: []byte(`{"id":"order-1","cents":1200}`)},
	{ID: "m-2", Subject: "order.placed", Body: []byte(`{"id":"order-2","cents":800}`)},
	{ID: "m-3", Subject: "order.placed", Body: []byte(`five pounds of apples`)},
	{ID: "m-4", Subject: "order.returned", Body: []byte(`{"id":"order-1"}`)},
}

// invoices returns a worker that writes an invoice for each order. The first try of each fails.
func invoices(in *inbox.Inbox[*sql.Tx], observe func(m *consume.Message, v inbox.Report)) (*inbox.Worker[*sql.Tx], error) {
	return in.Worker(inbox.Handler[*sql.Tx]{
		Types: []string{"order.placed"},
		Handle: inbox.JSON(func(ctx context.Context, tx *sql.Tx, m *consume.Message, o Order) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO invoice (order_id, cents) VALUES (?, ?)`, o.ID, o.Cents); err != nil {
				return err
			}
			if m.Retries == 0 {
				return errors.New("the printer is out of paper") // the row of the invoice is rolled back
			}
			return nil
		}),
	}, &inbox.WorkerOptions{
		Retry:   consume.RetryPolicy{Limit: 3, Min: 10 * time.Millisecond},
		Observe: func(_ context.Context, m *consume.Message, v inbox.Report) { observe(m, v) },
	})
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-inbox-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "billing.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE invoice (order_id TEXT NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	in, err := inbox.New(receiver, "billing", nil)
	if err != nil {
		return err
	}
	if err := in.Migrate(ctx); err != nil {
		return err
	}

	for i := range messages { // what a broker's adapter does
		isNew, err := in.Receive(ctx, &messages[i])
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is taken in, new: %v\n", messages[i].ID, isNew)
	}

	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := 0
	worker, err := invoices(in, func(_ *consume.Message, v inbox.Report) {
		if v.How != inbox.Retried {
			ended++
		}
		if ended == 3 {
			stop()
		}
	})
	if err != nil {
		return err
	}
	if err := worker.Run(working); err != nil {
		return err
	}
	return report(ctx, out, store.DB(), in)
}

// report says what became of the messages.
func report(ctx context.Context, out io.Writer, db *sql.DB, in *inbox.Inbox[*sql.Tx]) error {
	var n, cents int64
	if err := db.QueryRowContext(ctx, `SELECT count(*), sum(cents) FROM invoice`).Scan(&n, &cents); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d invoices of %d cents\n", n, cents)
	entries, err := in.Backlog().List(ctx, backlog.Filter{States: []backlog.State{backlog.Pending, backlog.Blocked}})
	if err != nil {
		return err
	}
	for _, e := range entries {
		fmt.Fprintln(out, e.ID, e.Kind, e.State, e.Error)
	}
	return nil
}
