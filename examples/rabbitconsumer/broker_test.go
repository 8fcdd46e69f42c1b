package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// bench is a queue and a database of a test's own.
type bench struct {
	t      *testing.T
	broker string
	queue  rabbitonce.Queue
	conn   *amqp.Connection
	ch     *amqp.Channel
	pool   *pgxpool.Pool
	recv   *everonce.TxReceiver[pgx.Tx]
}

func newBench(t *testing.T) *bench {
	t.Helper()
	database, broker := environment(t)
	name := "rabbitconsumer." + strings.ToLower(rand.Text())
	b := &bench{t: t, broker: broker, queue: rabbitonce.Queue{Name: name, DeadLetters: name + ".dead", Delays: []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}}}
	var err error
	if b.pool, err = pgxpool.New(t.Context(), database+"&pool_max_conns=6"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pool.Close)
	if _, err := b.pool.Exec(t.Context(), `CREATE TABLE invoice (order_id text NOT NULL, cents bigint NOT NULL)`); err != nil { // no unique index: duplicates must show
		t.Fatal(err)
	}
	var schema string
	if err := b.pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	// A named schema, not only one in the search_path: the locks of keys are shared by the whole database.
	store, err := pgxstore.New(b.pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.recv, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	if b.conn, err = amqp.Dial(broker); err != nil {
		t.Fatal(err)
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, q := range b.queues() {
			if _, err := b.ch.QueueDelete(q, false, false, false); err != nil {
				t.Error(err)
			}
		}
		if err := b.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	declared, err := b.dial(broker, b.spec(allWell), consume.Workers{}) // the queue, before there is anybody who consumes it
	if err != nil {
		t.Fatal(err)
	}
	if err := declared.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) queues() []string {
	return []string{b.queue.Name, b.queue.DeadLetters, b.queue.Name + ".retry.100ms", b.queue.Name + ".retry.400ms"}
}

// send publishes orders, and returns when the broker has them.
func (b *bench) send(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		msg := amqp.Publishing{MessageId: id, ContentType: "application/json", Body: []byte(`{"id":"` + id + `","cents":1200}`)}
		confirm, err := b.ch.PublishWithDeferredConfirm("", b.queue.Name, true, false, msg)
		if err != nil {
			b.t.Fatal(err)
		}
		if !confirm.Wait() {
			b.t.Fatal("the broker has not taken the message")
		}
	}
}

// sendMany publishes the orders of these numbers.
func (b *bench) sendMany(from, to int) {
	b.t.Helper()
	for i := from; i < to; i++ {
		b.send(fmt.Sprint("o-", i))
	}
}

// letter waits for a dead letter, takes it out, and returns its reason.
func (b *bench) letter() any {
	b.t.Helper()
	for deadline := time.Now().Add(soon); ; runtime.Gosched() {
		d, ok, err := b.ch.Get(b.queue.DeadLetters, true)
		if err != nil {
			b.t.Fatal(err)
		}
		if ok {
			return d.Headers["x-everonce-reason"]
		}
		if time.Now().After(deadline) {
			b.t.Fatal("no dead letter")
		}
	}
}

// wantLength waits until so many messages wait in a queue.
func (b *bench) wantLength(queue string, want int) {
	b.t.Helper()
	for deadline := time.Now().Add(soon); ; runtime.Gosched() {
		q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if q.Messages == want {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d messages in %s, want %d", q.Messages, queue, want)
		}
	}
}

// wants checks that there are so many invoices, one for each order, from so many commits; 0 is any number of them.
func (b *bench) wants(invoices, commits int) {
	b.t.Helper()
	var rows, distinct, in int
	err := b.pool.QueryRow(b.t.Context(), `SELECT count(*), count(DISTINCT order_id), count(DISTINCT xmin::text) FROM invoice`).Scan(&rows, &distinct, &in)
	if err != nil {
		b.t.Fatal(err)
	}
	if rows != invoices || distinct != invoices || commits > 0 && in != commits {
		b.t.Errorf("%d invoices of %d orders in %d commits, want one of each of %d orders in %d", rows, distinct, in, invoices, commits)
	}
}

// running is a consumer that runs.
type running struct {
	t        *testing.T
	verdicts chan consume.Decision
	end      context.CancelFunc
	done     chan struct{}
}

type orderSpec = consume.TxSpec[Order, pgx.Tx]

func (b *bench) dial(broker string, spec orderSpec, workers consume.Workers) (*rabbitonce.Consumer, error) {
	h, err := consume.NewTx(b.recv, spec)
	if err != nil {
		return nil, err
	}
	workers.Log = slog.New(slog.DiscardHandler)
	workers.Backoff.Min, workers.Backoff.Max = 10*time.Millisecond, 100*time.Millisecond
	return rabbitonce.Dial(b.t.Context(), broker, b.queue, h, &rabbitonce.Options{Workers: workers, Backoff: consume.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}})
}

// run runs a consumer until the test ends, or until stop is called.
func (b *bench) run(broker string, spec orderSpec, workers consume.Workers) *running {
	b.t.Helper()
	r := &running{t: b.t, verdicts: make(chan consume.Decision, 10_000), done: make(chan struct{})}
	spec.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { r.verdicts <- v }
	c, err := b.dial(broker, spec, workers)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	go func() {
		defer close(r.done)
		if err := c.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	b.t.Cleanup(r.stop)
	return r
}

// stop ends the consumer, and waits until it has drained.
func (r *running) stop() {
	r.end()
	wait(r.t, "the consumer's end", r.done)
}

func wait(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(soon):
		t.Errorf("waited for %s", what)
	}
}

func (r *running) verdict() consume.Decision {
	r.t.Helper()
	select {
	case v := <-r.verdicts:
		return v
	case <-time.After(soon):
		r.t.Fatal("nothing was handled")
		return consume.Decision{}
	}
}

// outcomes counts the outcomes of so many messages.
func (r *running) outcomes(n int) map[everonce.Outcome]int {
	r.t.Helper()
	counted := map[everonce.Outcome]int{}
	for range n {
		counted[r.verdict().Outcome]++
	}
	return counted
}

func (r *running) wantsOnly(n int, outcome everonce.Outcome) {
	r.t.Helper()
	if got := r.outcomes(n); got[outcome] != n {
		r.t.Errorf("%v, want %d of %v", got, n, outcome)
	}
}

// wire is a way to the broker that can be cut.
type wire struct {
	url string
	mu  sync.Mutex
	up  []net.Conn
}

func newWire(t *testing.T, broker string) *wire {
	t.Helper()
	uri, err := amqp.ParseURI(broker)
	if err != nil {
		t.Fatal("this is no broker's URL")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	to := net.JoinHostPort(uri.Host, fmt.Sprint(uri.Port))
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if out, err := net.Dial("tcp", to); err != nil {
				in.Close() //nolint:errcheck // the other end is closed
			} else {
				w.relay(in, out)
			}
		}
	}()
	t.Cleanup(func() { l.Close(); w.cut() })                       //nolint:errcheck // it was only for this
	uri.Host, uri.Port = "127.0.0.1", l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	w.url = uri.String()
	return w
}

func (w *wire) relay(in, out net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = append(w.up, in, out)
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		_ = errors.Join(err, to.Close(), from.Close()) // however it ended, both ends see it
	}
	go pass(in, out)
	go pass(out, in)
}

// cut ends all connections, and takes new ones.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.up {
		conn.Close() //nolint:errcheck // it may have ended before
	}
	w.up = nil
}
