package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
)

const (
	// rabbitBurst is how many messages are sent at a time: one operation of a way is all of them.
	rabbitBurst   = 500
	rabbitWorkers = 16
	// rabbitBatch is how many messages share a commit, and rabbitBatches how many such commits there are at a time.
	rabbitBatch   = 100
	rabbitBatches = 2
)

// rabbitBench is queues on the broker that the tests use, one for each way: what comes by any becomes a row in PostgreSQL.
type rabbitBench struct {
	pg     *pgBench
	conn   *amqp.Connection
	ch     *amqp.Channel
	stop   context.CancelFunc
	wg     sync.WaitGroup
	queues []string
	done   map[string]chan error // one for each message that was handled, by queue
	insert string
	many   string // inserts all rows of a batch
}

func rabbitmq(ctx context.Context) ([]*contest, func() error, error) {
	url, database := os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), os.Getenv("EVERONCE_TEST_POSTGRES_URL")
	if url == "" || database == "" {
		return nil, nil, errors.New(`no RabbitMQ or no PostgreSQL: run it by make bench, or set EVERONCE_TEST_RABBITMQ_URL and EVERONCE_TEST_POSTGRES_URL, or choose others with -only`)
	}
	b := &rabbitBench{pg: &pgBench{}, done: map[string]chan error{}}
	if err := b.open(ctx, url, database); err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.consumers()}, b.close, nil
}

func (b *rabbitBench) open(ctx context.Context, url, database string) (err error) {
	if err := b.pg.open(ctx, database); err != nil {
		return err
	}
	if _, err := b.pg.pool.Exec(ctx, "CREATE TABLE "+b.pg.schema+".invoice (order_id text NOT NULL, cents bigint NOT NULL)"); err != nil {
		return err
	}
	b.insert = "INSERT INTO " + b.pg.schema + ".invoice (order_id, cents) VALUES ($1, $2)"
	b.many = "INSERT INTO " + b.pg.schema + ".invoice (order_id, cents) SELECT * FROM unnest($1::text[], $2::bigint[])"
	if b.conn, err = amqp.Dial(url); err != nil {
		return err
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	ours, late, bare, single := b.pg.schema+".ours", b.pg.schema+".late", b.pg.schema+".bare", b.pg.schema+".single"
	each, together := b.pg.schema+".each", b.pg.schema+".together"
	for _, q := range []string{ours, late, bare, single, each, together} {
		b.queues = append(b.queues, q)
		b.done[q] = make(chan error, 2*rabbitBurst)
	}
	oneByOne := consume.Workers{Concurrency: rabbitWorkers}
	if err := b.consumeOurs(run, url, ours, b.pg.tx, oneByOne, nil); err != nil {
		return err
	}
	batches := consume.Workers{Concurrency: rabbitBatches, Batch: rabbitBatch}
	if err := b.consumeOurs(run, url, each, b.pg.tx, batches, nil); err != nil {
		return err
	}
	if err := b.consumeOurs(run, url, together, b.pg.tx, batches, b.insertMany); err != nil {
		return err
	}
	store, err := pgxstore.New(b.pg.pool, &pgxstore.Options{Schema: b.pg.schema})
	if err != nil {
		return err
	}
	optimistic, err := everonce.NewTxReceiver(store, &everonce.Options{Optimistic: true})
	if err != nil {
		return err
	}
	if err := b.consumeOurs(run, url, late, optimistic, oneByOne, nil); err != nil {
		return err
	}
	if err := b.consumeBare(run, url, bare, func(ctx context.Context, v invoice) error {
		return b.pg.inTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, b.insert, v.ID, v.Cents); return err })
	}); err != nil {
		return err
	}
	return b.consumeBare(run, url, single, func(ctx context.Context, v invoice) error {
		_, err := b.pg.pool.Exec(ctx, b.insert, v.ID, v.Cents)
		return err
	})
}

type invoice struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

type handleAll = func(context.Context, pgx.Tx, []consume.Received[invoice]) error

// consumeOurs runs a consumer whose row, or whose rows in batches, commit with the records.
func (b *rabbitBench) consumeOurs(ctx context.Context, url, queue string, receiver *everonce.TxReceiver[pgx.Tx], workers consume.Workers, all handleAll) error {
	spec := consume.TxSpec[invoice, pgx.Tx]{
		Consumer: queue, Key: consume.ProducerID(), HandleAll: all,
		Handle: func(ctx context.Context, tx pgx.Tx, _ *consume.Message, v invoice) error {
			_, err := tx.Exec(ctx, b.insert, v.ID, v.Cents)
			return err
		},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Verdict) {
			b.done[queue] <- expect(v.Outcome, everonce.Executed, v.Err)
		},
	}
	workers.Log = slog.New(slog.DiscardHandler)
	handler, err := consume.NewTx(receiver, spec)
	if err != nil {
		return err
	}
	c, err := rabbitonce.Dial(ctx, url, rabbitonce.Queue{Name: queue}, handler, &rabbitonce.Options{Workers: workers})
	if err != nil {
		return err
	}
	b.wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			b.done[queue] <- err
		}
	})
	return nil
}

func (b *rabbitBench) insertMany(ctx context.Context, tx pgx.Tx, batch []consume.Received[invoice]) error {
	orders, cents := make([]string, len(batch)), make([]int64, len(batch))
	for i, r := range batch {
		orders[i], cents[i] = r.Payload.ID, r.Payload.Cents
	}
	_, err := tx.Exec(ctx, b.many, orders, cents)
	return err
}

// consumeBare consumes the same kind of queue by hand: decode, insert, acknowledge.
func (b *rabbitBench) consumeBare(ctx context.Context, url, queue string, insert func(context.Context, invoice) error) error {
	arguments := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)}
	if _, err := b.ch.QueueDeclare(queue, true, false, false, false, arguments); err != nil {
		return err
	}
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(2*rabbitWorkers, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for range rabbitWorkers {
		b.wg.Go(func() {
			for d := range deliveries {
				b.done[queue] <- handleBare(ctx, &d, insert)
			}
		})
	}
	context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // the measurement is over
	return nil
}

func handleBare(ctx context.Context, d *amqp.Delivery, insert func(context.Context, invoice) error) error {
	var v invoice
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	if err := insert(ctx, v); err != nil {
		return err
	}
	return d.Ack(false)
}

// burst sends messages, and waits until all are handled.
func (b *rabbitBench) burst(ctx context.Context, queue string, n int64) error {
	for i := range int64(rabbitBurst) {
		id := orderKey(n*rabbitBurst + i).ID
		msg := amqp.Publishing{MessageId: id, ContentType: "application/json", Body: []byte(`{"id":"` + id + `","cents":` + strconv.FormatInt(i, 10) + `}`)}
		if err := b.ch.PublishWithContext(ctx, "", queue, false, false, msg); err != nil {
			return err
		}
	}
	for range rabbitBurst {
		if err := <-b.done[queue]; err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
	}
	return nil
}

func (b *rabbitBench) consumers() *contest {
	at := func(i int) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error { return b.burst(ctx, b.queues[i], n) }
	}
	ours := &way{name: "ours: row and record in one commit", do: at(0), size: rabbitBurst}
	late := &way{name: "ours, optimistic", do: at(1), size: rabbitBurst}
	bare := &way{name: "bare: BEGIN, INSERT, COMMIT, acknowledge", do: at(2), size: rabbitBurst}
	single := &way{name: "bare: one INSERT, acknowledge", do: at(3), size: rabbitBurst}
	each := &way{name: "ours, 100 in one commit", do: at(4), size: rabbitBurst}
	together := &way{name: "ours, 100 in one INSERT and commit", do: at(5), size: rabbitBurst}
	return &contest{
		store: "RabbitMQ to PostgreSQL", mode: "a consumer, new keys", callers: 1, trips: &b.pg.trips,
		ways: []*way{bare, ours, late, single, each, together},
		targets: []target{
			ours.atLeast(0.7, bare, "RabbitMQ consumer: of a bare one with the same transaction"),
			each.atLeast(0.7, single, "RabbitMQ consumer in batches: of a bare one without a transaction"),
		},
	}
}

func (b *rabbitBench) close() error {
	if b.stop != nil {
		b.stop()
		b.wg.Wait()
	}
	var errs []error
	for _, q := range b.queues {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			_, err := b.ch.QueueDelete(q+suffix, false, false, false)
			errs = append(errs, err)
		}
	}
	if b.conn != nil {
		errs = append(errs, b.conn.Close())
	}
	return errors.Join(append(errs, b.pg.close())...)
}
