package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/pgxstore"
)

// with is the table in PostgreSQL that stands between the broker and MongoDB; by default none does.
type with string

const (
	withInbox  with = "inbox"  // of the messages, which are handled afterwards
	withOutbox with = "outbox" // of the events, which are sent on afterwards
)

// Set implements [flag.Value].
func (w *with) Set(text string) error {
	if *w = with(text); *w != withInbox && *w != withOutbox {
		return errors.New("it is one of inbox, outbox")
	}
	return nil
}

// String implements [flag.Value].
func (w *with) String() string { return string(*w) }

// lease is short, because messages of a killed worker wait this long.
const lease = time.Second

// openTables opens what a schema of PostgreSQL holds.
func openTables(ctx context.Context, postgresURL, schema string) (*everonce.TxReceiver[pgx.Tx], *pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(postgresURL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return receiver, pool, nil
}

// makeTables makes the store's tables, and the table of the inbox or the outbox, whose backlog it returns. Down removes
// them.
func makeTables(ctx context.Context, w with, postgresURL, schema string) (b *backlog.Table, down func() error, err error) {
	receiver, pool, err := openTables(ctx, postgresURL, schema)
	if err != nil {
		return nil, nil, err
	}
	down = func() error {
		defer pool.Close()
		_, err := pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, down())
		}
	}()
	if err := receiver.Store().(*pgxstore.Store).Migrate(ctx); err != nil { //nolint:forcetypeassert // as openTables has it
		return nil, nil, fmt.Errorf("PostgreSQL cannot be reached: %w", err)
	}
	if w == withInbox {
		in, err := inbox.New(receiver, "eventpipeline", nil)
		if err != nil {
			return nil, nil, err
		}
		return in.Backlog(), down, in.Migrate(ctx)
	}
	box, err := outbox.New(receiver, nil)
	if err != nil {
		return nil, nil, err
	}
	return box.Backlog(), down, box.Migrate(ctx)
}

// inboxed takes messages in, which acknowledges them; an inbox's worker handles them afterwards. So a slow or absent
// MongoDB does not hold the broker up.
func (w *worker) inboxed(receiver *everonce.TxReceiver[pgx.Tx]) (handler *consume.Consumer, run func(context.Context) error, err error) {
	in, err := inbox.New(receiver, "eventpipeline", nil)
	if err != nil {
		return nil, nil, err
	}
	handler, err = consume.NewNatural(consume.NaturalSpec[[]byte]{ // in.Consumer() is the same, and counts nothing
		Consumer: "eventpipeline", Key: w.key, Observe: w.observe,
		Decode: func(m *consume.Message) ([]byte, error) { return m.Body, nil },
		Handle: func(ctx context.Context, m *consume.Message, _ []byte) (isNew bool, err error) {
			return in.Receive(ctx, m)
		},
	})
	if err != nil {
		return nil, nil, err
	}
	worker, err := in.Worker(inbox.Handler[pgx.Tx]{
		// The writes through tx take effect once, with the message's record. MongoDB is a different database: there the
		// unique index does it.
		Handle: inbox.JSON(func(ctx context.Context, _ pgx.Tx, m *consume.Message, o Order) error {
			_, err := w.handle(ctx, m, o)
			return err
		}),
	}, &inbox.WorkerOptions{Concurrency: 4, Lease: lease, Retry: retries})
	if err != nil {
		return nil, nil, err
	}
	return handler, worker.Run, nil
}

// outboxed handles messages in a transaction, in which the event is published; the outbox's relay sends it on to
// MongoDB.
func (w *worker) outboxed(receiver *everonce.TxReceiver[pgx.Tx]) (handler *consume.Consumer, run func(context.Context) error, err error) {
	box, err := outbox.New(receiver, nil)
	if err != nil {
		return nil, nil, err
	}
	handler, err = consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
		Consumer: "eventpipeline", Key: w.key, Observe: w.observe, Retry: retries,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
			e, err := eventOf(ctx, &w.customers, m, o)
			if err != nil {
				return err
			}
			// Rows of the application's own would be written here, through tx.
			body, err := json.Marshal(e)
			if err != nil {
				return err
			}
			return box.Publish(ctx, tx, outbox.Event{Topic: "events", Key: e.Customer, Type: e.Class, Payload: body})
		},
	})
	if err != nil {
		return nil, nil, err
	}
	relay, err := box.Relay(outbox.One(4, w.sendOn), &outbox.RelayOptions{Batch: 10, Lease: lease})
	if err != nil {
		return nil, nil, err
	}
	return handler, relay.Run, nil
}

// sendOn saves an event that the relay publishes. After a relay was killed it may come again.
func (w *worker) sendOn(ctx context.Context, published *outbox.Event) error {
	var e Event
	if err := json.Unmarshal(published.Payload, &e); err != nil {
		return err
	}
	_, err := w.saveOnce(ctx, e)
	if errors.Is(err, everonce.ErrStore) { // MongoDB is away, and the event is not to blame
		return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	}
	return err
}
