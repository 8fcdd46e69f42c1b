package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/mongostore"
)

// settings are what the flags say.
type settings struct {
	Events, Workers, Kills int
	Away                   time.Duration // of MongoDB
	RestartBroker          bool
	With                   with
	Broken                 mistake
	Log                    *log.Logger
	Said                   io.Writer // by the workers
}

// run is one run of the pipeline.
type run struct {
	settings
	servers  *servers
	fleet    *fleet
	producer *producer
	line     *line
	sent     []sent
	restarts int
	declared time.Time // when the queues were declared

	events, customers *mongo.Collection // not over the line
	backlog           *backlog.Table    // of the inbox or the outbox; nil without
}

// pipeline sends events through the workers while these are killed, the broker is restarted, and the database goes
// away; and reports what has become of them.
func pipeline(ctx context.Context, servers *servers, s settings) (rep Report, err error) {
	r := &run{settings: s, servers: servers}
	if r.sent, err = ordersOf(s.Events); err != nil {
		return rep, err
	}
	down, err := r.prepare(ctx)
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return rep, err
	}
	r.fleet.start(ctx)
	defer r.fleet.stop()
	if err := r.stream(ctx); err != nil {
		return rep, err
	}
	if err := r.settle(ctx); err != nil {
		return rep, err
	}
	if err := r.introduce(ctx, newcomer); err != nil {
		return rep, err
	}
	for range 3 { // if something is missing, look again; replay messages again that were with too many workers when they died
		if err := r.replay(ctx); err != nil {
			return rep, err
		}
		if err := r.settle(ctx); err != nil {
			return rep, err
		}
		if rep, err = r.audit(ctx); err != nil || rep.Lost+rep.Stranded == 0 {
			break
		}
	}
	return rep, err
}

// prepare creates the tables and queues of the pipeline. The function that it returns removes them.
func (r *run) prepare(ctx context.Context) (down func() error, err error) {
	name := "eventpipeline-" + strings.ToLower(rand.Text()[:12])
	var undo []func() error
	down = func() (err error) {
		for _, u := range undo {
			err = errors.Join(err, u())
		}
		return err
	}
	client, err := connect(r.servers.mongoURL)
	if err != nil {
		return down, err
	}
	if err := client.Ping(ctx, nil); err != nil {
		return down, fmt.Errorf("MongoDB cannot be reached: %w", errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))))
	}
	db := client.Database(name)
	undo = append(undo, func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(db.Drop(ctx), client.Disconnect(ctx))
	})
	r.events, r.customers = db.Collection("events"), db.Collection("customers")
	if r.Broken.indexed() {
		if err := mongostore.EnsureIndex(ctx, r.events, byEvent); err != nil {
			return down, err
		}
	}
	for i := range 7 {
		if err := r.introduce(ctx, fmt.Sprintf("customer-%d", i)); err != nil {
			return down, err
		}
	}
	l, way, err := openLine(ctx, r.servers.mongoURL)
	if err != nil {
		return down, err
	}
	r.line = l
	undo = append(undo, l.close)
	program, err := os.Executable()
	if err != nil {
		return down, err
	}
	r.fleet = &fleet{
		program: program, size: r.Workers, toKill: r.Kills, said: r.Said, counts: map[string]int{}, running: map[*exec.Cmd]bool{},
		orders: orders{RabbitURL: r.servers.rabbitURL, MongoURL: way, Queue: name, Database: name, With: r.With, Broken: r.Broken},
	}
	if r.With != "" {
		told := &r.fleet.orders
		told.PostgresURL, told.Schema = r.servers.postgresURL, strings.ReplaceAll(name, "-", "_")
		var dropped func() error
		if r.backlog, dropped, err = makeTables(ctx, r.With, told.PostgresURL, told.Schema); err != nil {
			return down, err
		}
		undo = append(undo, dropped)
	}
	r.producer = &producer{url: r.servers.rabbitURL, queue: name}
	undo = append(undo, func() error { r.producer.hangUp(); return r.removeQueues(context.WithoutCancel(ctx)) })
	return down, r.declare(ctx)
}

// introduce makes a customer known.
func (r *run) introduce(ctx context.Context, customer string) error {
	_, err := r.customers.InsertOne(ctx, bson.D{{Key: "_id", Value: customer}, {Key: "country", Value: country}})
	return err
}

// declare declares the queues: before anybody sends to them.
func (r *run) declare(ctx context.Context) error {
	handler, err := (&worker{}).handler()
	if err != nil {
		return err
	}
	c, err := rabbitonce.Dial(ctx, r.servers.rabbitURL, queueOf(r.producer.queue), handler, nil)
	if err != nil {
		return err
	}
	r.declared = time.Now()
	return c.Close()
}

// stream sends all events. Meanwhile the database goes away, and then the broker is restarted.
func (r *run) stream(ctx context.Context) error {
	stream := withDuplicates(r.sent)
	at := func(percent int) int { return len(stream) * percent / 100 }
	if err := r.producer.publish(ctx, stream[:at(30)]); err != nil {
		return err
	}
	if err := r.whileAway(ctx, stream[at(30):at(45)]); err != nil {
		return err
	}
	if err := r.restartBroker(ctx, stream[at(45):at(60)]); err != nil {
		return err
	}
	return r.producer.publish(ctx, stream[at(60):])
}

// written is how long it may take until a killed broker keeps a queue. RabbitMQ writes the name of a new quorum queue
// to disk within a second, and not at once (https://github.com/rabbitmq/ra/pull/443 fixes that): after a kill before
// that the queue exists, but as a new member without its messages, which is never elected.
const written = 3 * time.Second

// restartBroker sends events while the broker is killed and started again; where they are not enough for that, once
// more.
func (r *run) restartBroker(ctx context.Context, stream []sent) error {
	if !r.RestartBroker {
		return r.producer.publish(ctx, stream)
	}
	if err := pause(ctx, time.Until(r.declared.Add(written))); err != nil {
		return err
	}
	r.Log.Print("the broker is killed, and started again")
	before := r.producer.failures
	restarted := make(chan error, 1)
	go func() { restarted <- r.servers.restart(ctx) }()
	for rest, all := stream, false; ; {
		n := min(window, len(rest))
		if err := r.producer.publish(ctx, rest[:n]); err != nil {
			return errors.Join(err, <-restarted)
		}
		if rest = rest[n:]; len(rest) == 0 {
			rest, all = stream, true
		}
		select {
		case err := <-restarted:
			if err != nil {
				return err
			}
			if r.producer.failures == before {
				return errors.New("the broker was restarted, and the producer did not notice")
			}
			r.restarts++
			r.Log.Print("the broker is back")
			if all {
				return nil
			}
			return r.producer.publish(ctx, rest)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// whileAway sends events while the database is away, and looks at what is acknowledged then.
func (r *run) whileAway(ctx context.Context, stream []sent) error {
	if r.Away == 0 {
		return r.producer.publish(ctx, stream)
	}
	for { // it goes away from workers that are at work
		if _, acked := r.fleet.ackedSince(0); acked > r.producer.published/2 {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	_, before := r.fleet.ackedSince(0)
	r.line.cut()
	r.Log.Printf("MongoDB is away for %v", r.Away)
	there, err := documents(ctx, r.events) // documents saved before
	if err != nil {
		return err
	}
	err = errors.Join(r.producer.publish(ctx, stream), pause(ctx, r.Away))
	acked, _ := r.fleet.ackedSince(before)
	r.line.mend()
	unsaved := 0
	for _, id := range acked {
		if len(there[id]) == 0 {
			unsaved++
		}
	}
	r.Log.Printf("MongoDB is back; %d messages were acknowledged meanwhile whose event it does not have", unsaved)
	if unsaved > 0 && r.Broken == none && r.With == "" { // otherwise PostgreSQL has them
		err = errors.Join(err, fmt.Errorf("%d messages were acknowledged unsaved", unsaved))
	}
	return err
}

// replay gives all dead letters another chance.
func (r *run) replay(ctx context.Context) error {
	letters, err := rabbitonce.DialDeadLetters(ctx, r.servers.rabbitURL, queueOf(r.producer.queue), nil)
	if err != nil {
		return err
	}
	n, err := letters.Replay(ctx, consume.Filter{})
	if err == nil && r.backlog != nil {
		var more int
		more, err = r.backlog.Retry(ctx, setAside)
		n += more
	}
	r.Log.Printf("%d dead letters are replayed", n)
	r.fleet.start(ctx)
	return errors.Join(err, letters.Close())
}

// setAside are the dead letters of an inbox.
var setAside = backlog.Filter{States: []backlog.State{backlog.Blocked, backlog.Dead}}

// settle returns when nothing is left in the queues but dead letters. The workers have ended then.
func (r *run) settle(ctx context.Context) error {
	for {
		if err := r.untilEmpty(ctx); err != nil {
			return err
		}
		r.fleet.stop() // all messages are acknowledged by now, or in their queue again
		empty := true
		for range 3 {
			n, err := r.waiting(ctx)
			if err != nil {
				return err
			}
			empty = empty && n == 0
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		if empty {
			return nil
		}
		r.fleet.start(ctx)
	}
}

func (r *run) untilEmpty(ctx context.Context) error {
	for {
		n, err := r.waiting(ctx)
		if err == nil && n == 0 {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// queues are those with messages that are to be handled.
func (r *run) queues() []string {
	name := r.producer.queue
	return []string{name, name + ".retry.100ms", name + ".retry.300ms"}
}

// waiting returns how many messages are ready in the queues, or in the table of an inbox or an outbox.
func (r *run) waiting(ctx context.Context) (n int, err error) {
	err = r.onChannel(ctx, func(ch *amqp.Channel) error {
		for _, name := range r.queues() {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			n += q.Messages
		}
		return nil
	})
	if err != nil || r.backlog == nil {
		return n, err
	}
	s, err := r.backlog.Stats(ctx)
	return n + s.Waiting + s.InHand, err
}

func (r *run) removeQueues(ctx context.Context) error {
	return r.onChannel(ctx, func(ch *amqp.Channel) (err error) {
		for _, name := range append(r.queues(), r.producer.queue+".dead") {
			_, gone := ch.QueueDelete(name, false, false, false)
			err = errors.Join(err, gone)
		}
		return err
	})
}

// onChannel asks the broker something, for at most half a minute.
func (r *run) onChannel(ctx context.Context, fn func(*amqp.Channel) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := amqp.Dial(r.servers.rabbitURL)
	if err != nil {
		return err
	}
	hangUp := func() { conn.CloseDeadline(time.Now().Add(5 * time.Second)) } //nolint:errcheck // what counts is confirmed
	defer hangUp()
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return fn(ch)
}
