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

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/pgxstore"
)

const (
	// burst is how many messages are sent at a time: one operation of a way is all of them.
	burst           = 500
	consumerWorkers = 16
	// consumerBatch is how many messages share a commit, and consumerBatches how many such commits there are at a time.
	consumerBatch   = 100
	consumerBatches = 2
)

// broker is what the bench of consumers needs of one kind of broker.
type broker interface {
	// serve makes a queue, and returns what has its messages handled by h until its context ends.
	serve(ctx context.Context, queue string, h *consume.Consumer, workers consume.Workers) (run func(context.Context) error, err error)
	// bare makes a queue of the same kind, and begins to consume it by hand, with the same client: consumerWorkers
	// messages at a time are handled and acknowledged, until ctx ends.
	bare(ctx context.Context, queue string, handle func(context.Context, []byte) error) error
	// send sends messages.
	send(ctx context.Context, queue string, messages []sent) error
	// remove deletes queues, with all that belongs to them.
	remove(queues []string) error
}

// sent is a message.
type sent struct {
	id   string
	body []byte
}

// brokers say how to connect to each kind, at the URL in a variable.
var brokers = map[string]struct {
	name, variable string
	connect        func(ctx context.Context, url string) (broker, error)
}{
	"rabbitmq": {"RabbitMQ", "EVERONCE_TEST_RABBITMQ_URL", newRabbit},
	"kafka":    {"Kafka", "EVERONCE_TEST_KAFKA_URL", newKafka},
	"nats":     {"NATS", "EVERONCE_TEST_NATS_URL", newNATS},
	"sqs":      {"SQS", "EVERONCE_TEST_SQS_URL", newSQS},
}

// consumerBench is queues on a broker, one for each way: what comes by any becomes a row in PostgreSQL.
type consumerBench struct {
	name   string
	pg     *pgBench
	broker broker
	stop   context.CancelFunc
	wg     sync.WaitGroup
	queues []string
	done   map[string]chan error // one for each message that was handled, by queue
	insert string
	many   string // inserts all rows of a batch
}

// consumers measures the consumer of a kind of broker.
func consumers(kind string) func(context.Context) ([]*contest, func() error, error) {
	return func(ctx context.Context) ([]*contest, func() error, error) {
		k := brokers[kind]
		url, database := os.Getenv(k.variable), os.Getenv("EVERONCE_TEST_POSTGRES_URL")
		if url == "" || database == "" {
			return nil, nil, fmt.Errorf("no %s or no PostgreSQL: run it by make bench, or set %s and EVERONCE_TEST_POSTGRES_URL, or choose others with -only", k.name, k.variable)
		}
		b := &consumerBench{name: k.name, pg: &pgBench{}, done: map[string]chan error{}}
		if err := b.open(ctx, database, func() (broker, error) { return k.connect(ctx, url) }); err != nil {
			return nil, nil, errors.Join(err, b.close())
		}
		return []*contest{b.contest()}, b.close, nil
	}
}

// The ways, and what the names of their queues end with.
const (
	wayOurs     = "ours"
	wayLate     = "late"
	wayBare     = "bare"
	waySingle   = "single"
	wayEach     = "each"
	wayTogether = "together"
)

func (b *consumerBench) open(ctx context.Context, database string, connect func() (broker, error)) (err error) {
	if err := b.pg.open(ctx, database); err != nil {
		return err
	}
	if _, err := b.pg.pool.Exec(ctx, "CREATE TABLE "+b.pg.schema+".invoice (order_id text NOT NULL, cents bigint NOT NULL)"); err != nil {
		return err
	}
	b.insert = "INSERT INTO " + b.pg.schema + ".invoice (order_id, cents) VALUES ($1, $2)"
	b.many = "INSERT INTO " + b.pg.schema + ".invoice (order_id, cents) SELECT * FROM unnest($1::text[], $2::bigint[])"
	if b.broker, err = connect(); err != nil {
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
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	oneByOne := consume.Workers{Concurrency: consumerWorkers}
	batches := consume.Workers{Concurrency: consumerBatches, Batch: consumerBatch}
	return errors.Join(
		b.ours(run, wayOurs, b.pg.tx, oneByOne, nil),
		b.ours(run, wayEach, b.pg.tx, batches, nil),
		b.ours(run, wayTogether, b.pg.tx, batches, b.insertMany),
		b.ours(run, wayLate, optimistic, oneByOne, nil),
		b.bare(run, wayBare, func(ctx context.Context, v invoice) error {
			return b.pg.inTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, b.insert, v.ID, v.Cents); return err })
		}),
		b.bare(run, waySingle, func(ctx context.Context, v invoice) error {
			_, err := b.pg.pool.Exec(ctx, b.insert, v.ID, v.Cents)
			return err
		}),
	)
}

type invoice struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// queue makes the name of a way's queue known.
func (b *consumerBench) queue(way string) string {
	name := b.pg.schema + "-" + way // what each broker allows
	if b.done[name] == nil {
		b.queues, b.done[name] = append(b.queues, name), make(chan error, 2*burst)
	}
	return name
}

type handleAll = func(context.Context, pgx.Tx, []consume.Received[invoice]) error

// ours runs a consumer whose row, or whose rows in batches, commit with the records.
func (b *consumerBench) ours(ctx context.Context, way string, receiver *everonce.TxReceiver[pgx.Tx], workers consume.Workers, all handleAll) error {
	queue := b.queue(way)
	done := b.done[queue]
	handler, err := consume.NewTx(receiver, consume.TxSpec[invoice, pgx.Tx]{
		Consumer: queue, Key: consume.ProducerID(), HandleAll: all,
		Handle: func(ctx context.Context, tx pgx.Tx, _ *consume.Message, v invoice) error {
			_, err := tx.Exec(ctx, b.insert, v.ID, v.Cents)
			return err
		},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) {
			done <- expect(v.Outcome, everonce.Executed, v.Err)
		},
	})
	if err != nil {
		return err
	}
	workers.Log = slog.New(slog.DiscardHandler)
	run, err := b.broker.serve(ctx, queue, handler, workers)
	if err != nil {
		return err
	}
	b.wg.Go(func() {
		if err := run(ctx); err != nil {
			done <- err
		}
	})
	return nil
}

func (b *consumerBench) insertMany(ctx context.Context, tx pgx.Tx, batch []consume.Received[invoice]) error {
	orders, cents := make([]string, len(batch)), make([]int64, len(batch))
	for i, r := range batch {
		orders[i], cents[i] = r.Payload.ID, r.Payload.Cents
	}
	_, err := tx.Exec(ctx, b.many, orders, cents)
	return err
}

// bare consumes the same kind of queue by hand: decode, insert, acknowledge.
func (b *consumerBench) bare(ctx context.Context, way string, insert func(context.Context, invoice) error) error {
	queue := b.queue(way)
	return b.broker.bare(ctx, queue, func(ctx context.Context, body []byte) (err error) {
		var v invoice
		if err = json.Unmarshal(body, &v); err == nil {
			err = insert(ctx, v)
		}
		b.done[queue] <- err
		return err
	})
}

// burst sends messages, and waits until all are handled.
func (b *consumerBench) burst(ctx context.Context, queue string, n int64) error {
	messages := make([]sent, burst)
	for i := range messages {
		id := orderKey(n*burst + int64(i)).ID
		messages[i] = sent{id, []byte(`{"id":"` + id + `","cents":` + strconv.Itoa(i) + `}`)}
	}
	if err := b.broker.send(ctx, queue, messages); err != nil {
		return err
	}
	for range burst {
		if err := <-b.done[queue]; err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
	}
	return nil
}

func (b *consumerBench) contest() *contest {
	of := func(name, way string) *way {
		queue := b.queue(way)
		return newWay(name, func(ctx context.Context, n int64) error { return b.burst(ctx, queue, n) })
	}
	ours, late := of("ours: row and record in one commit", wayOurs), of("ours, optimistic", wayLate)
	bare, single := of("bare: BEGIN, INSERT, COMMIT, acknowledge", wayBare), of("bare: one INSERT, acknowledge", waySingle)
	each, together := of("ours, 100 in one commit", wayEach), of("ours, 100 in one INSERT and commit", wayTogether)
	least, inBatches := 0.6, each.atLeast(1, bare, b.name+" consumer in batches: of a bare one with the same transaction")
	if b.name == "RabbitMQ" {
		least, inBatches = 0.7, each.atLeast(0.7, single, b.name+" consumer in batches: of a bare one without a transaction")
	}
	return &contest{
		store: b.name + " to PostgreSQL", mode: fmt.Sprintf("a consumer, new keys, %d at a time", consumerWorkers), callers: 1, trips: &b.pg.trips,
		ways: []*way{bare, ours, late, single, each, together},
		targets: []target{
			ours.atLeast(least, bare, b.name+" consumer: of a bare one with the same transaction"),
			inBatches,
		},
	}
}

func newWay(name string, do func(context.Context, int64) error) *way {
	return &way{name: name, do: do, size: burst}
}

func (b *consumerBench) close() error {
	if b.stop != nil {
		b.stop()
		b.wg.Wait()
	}
	var errs []error
	if b.broker != nil {
		errs = append(errs, b.broker.remove(b.queues))
	}
	return errors.Join(append(errs, b.pg.close())...)
}
