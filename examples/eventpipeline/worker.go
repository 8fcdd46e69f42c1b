package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/mongostore"
)

// byEvent is the unique index that makes an event one.
var byEvent = mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}

// workerFlag makes the program a worker: it is how the program runs itself again.
const workerFlag = "-worker"

// orders are a worker's orders, the first line of its input.
type orders struct {
	RabbitURL, MongoURL, Queue, Database string
	PostgresURL, Schema                  string // for what it is with

	With   with
	Broken mistake
	// KillAfter: the worker kills itself between an insert and its acknowledgement, the so many-th. 0 is never.
	KillAfter int
}

// queueOf is the queue with its delays, which are short here.
func queueOf(name string) rabbitonce.Queue {
	return rabbitonce.Queue{Name: name, Delays: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}}
}

// worker is one process that receives.
type worker struct {
	orders
	out       io.Writer
	customers directory
	save      saver
	// begun holds the messages in progress: a message that waits there while the database is away is one delivery.
	begun    sync.Map
	inserted atomic.Int64
}

// saver saves an event, and says whether it is new.
type saver func(context.Context, Event) (inserted bool, err error)

// runWorker receives until it is told to end: by a signal, or by the end of its input, as when the program is gone.
func runWorker(in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &worker{out: out}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&w.orders); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		io.Copy(io.Discard, in) //nolint:errcheck // wait for its end
	}()
	client, err := connect(w.MongoURL)
	if err != nil {
		return err
	}
	defer client.Disconnect(context.Background()) //nolint:errcheck // the process ends
	db := client.Database(w.Database)
	w.customers.customers = db.Collection("customers")
	if w.save, err = newSaver(ctx, w.Broken, db.Collection("events")); err != nil {
		return err
	}
	handler, beside, down, err := w.opened(ctx)
	defer down()
	if err != nil {
		return err
	}
	if w.Broken == ackFirst {
		return w.acknowledgeFirst(ctx, handler)
	}
	c, err := rabbitonce.Dial(ctx, w.RabbitURL, queueOf(w.Queue), handler, &rabbitonce.Options{
		Workers: consume.Workers{Backoff: consume.Backoff{Min: 200 * time.Millisecond, Max: time.Second}},
		Backoff: consume.Backoff{Min: 200 * time.Millisecond, Max: time.Second},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel() // neither goes on without the other
		ended <- beside(ctx)
	}()
	err = c.Run(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// opened returns what handles messages, and what runs beside it.
func (w *worker) opened(ctx context.Context) (handler *consume.Consumer, beside func(context.Context) error, down func(), err error) {
	if w.With == "" {
		handler, err = w.handler()
		return handler, func(ctx context.Context) error { <-ctx.Done(); return nil }, func() {}, err
	}
	receiver, pool, err := openTables(ctx, w.PostgresURL, w.Schema)
	if err != nil {
		return nil, nil, func() {}, err
	}
	if w.With == withInbox {
		handler, beside, err = w.inboxed(receiver)
	} else {
		handler, beside, err = w.outboxed(receiver)
	}
	return handler, beside, pool.Close, err
}

// connect makes a client that soon says that the server is away.
func connect(url string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(url).SetServerSelectionTimeout(3 * time.Second).SetTimeout(4 * time.Second))
}

// newSaver is the insert under the unique index; or one with a mistake.
func newSaver(ctx context.Context, broken mistake, events *mongo.Collection) (saver, error) {
	if s := broken.saver(events); s != nil {
		return s, nil
	}
	inserter, err := mongostore.NewInserter(ctx, events, byEvent) // refuses to begin without the index
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, e Event) (bool, error) { return inserter.InsertOnce(ctx, e) }, nil
}

// retries are few and short here.
var retries = consume.RetryPolicy{Limit: 2, Min: 100 * time.Millisecond, Max: 300 * time.Millisecond}

func (w *worker) handler() (*consume.Consumer, error) {
	return consume.NewNatural(consume.NaturalSpec[Order]{
		Consumer: "eventpipeline",
		Key:      w.key,
		Handle:   w.handle,
		Retry:    retries,
		Observe:  w.observe,
	})
}

// key is the producer's ID. It is asked for first, so deliveries are counted here.
func (w *worker) key(m *consume.Message) (string, error) {
	if _, known := w.begun.LoadOrStore(m, true); !known {
		w.tell(delivered, "")
	}
	return consume.ProducerID()(m)
}

// handle is the pipeline: validate, enrich, classify, and save.
func (w *worker) handle(ctx context.Context, m *consume.Message, o Order) (bool, error) {
	e, err := eventOf(ctx, &w.customers, m, o)
	if err != nil {
		return false, err
	}
	if w.Broken == ackFirst {
		w.dieInBetween()
	}
	return w.saveOnce(ctx, e)
}

// saveOnce saves an event, after which the process may die.
func (w *worker) saveOnce(ctx context.Context, e Event) (inserted bool, err error) {
	inserted, err = w.save(ctx, e)
	if inserted && w.Broken != ackFirst {
		w.dieInBetween()
	}
	return inserted, err
}

// dieInBetween kills the process, if it is time: the message is saved and not acknowledged; or the other way round.
func (w *worker) dieInBetween() {
	if int(w.inserted.Add(1)) != w.KillAfter {
		return
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // there is no time to look at it
	select {}
}

func (w *worker) observe(_ context.Context, m *consume.Message, v consume.Decision) {
	if v.Disposition != consume.Hold {
		w.begun.Delete(m)
	}
	if v.Outcome == everonce.Replayed {
		w.tell(absorbed, "")
	}
	if v.Disposition == consume.Ack && w.Broken != ackFirst {
		w.tell(acknowledged, m.ID)
	}
}

// Reports of a worker to the program, one per line: a line that was written arrives even if the worker is killed then.
const (
	delivered    = "delivered"
	acknowledged = "acknowledged" // and the event's ID
	absorbed     = "absorbed"     // a duplicate, which changed nothing
)

func (w *worker) tell(what, id string) {
	if _, err := fmt.Fprintf(w.out, "%s %s\n", what, id); err != nil && !errors.Is(err, os.ErrClosed) {
		slog.Error("the program does not listen", "error", err)
	}
}
