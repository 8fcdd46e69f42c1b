package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/consume"
)

// mistake is one that receivers are built with. None is the right way.
type mistake string

const (
	none            mistake = ""
	ackFirst        mistake = "ack-first"         // acknowledged, then saved
	wideCatch       mistake = "wide-catch"        // every error of the insert is taken for a duplicate
	checkThenInsert mistake = "check-then-insert" // looked for, and inserted if it is missing; no unique index
	noIndex         mistake = "no-index"          // inserted, without a unique index
)

var mistakes = []mistake{ackFirst, wideCatch, checkThenInsert, noIndex}

// Set implements [flag.Value].
func (m *mistake) Set(text string) error {
	if !slices.Contains(mistakes, mistake(text)) {
		return fmt.Errorf("it is one of %s", m.all())
	}
	*m = mistake(text)
	return nil
}

// String implements [flag.Value].
func (m *mistake) String() string { return string(*m) }

func (*mistake) all() string {
	names := make([]string, len(mistakes))
	for i, m := range mistakes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}

// indexed reports whether the collection has the unique index.
func (m *mistake) indexed() bool { return *m != checkThenInsert && *m != noIndex }

// saver is the mistake's own way to save; nil where saving is not what is wrong.
func (m *mistake) saver(events *mongo.Collection) saver {
	insert := func(ctx context.Context, e Event) (bool, error) {
		_, err := events.InsertOne(ctx, e)
		return err == nil, err
	}
	switch *m {
	case wideCatch:
		return func(ctx context.Context, e Event) (bool, error) {
			inserted, _ := insert(ctx, e) //nolint:errcheck // that is the mistake
			return inserted, nil
		}
	case checkThenInsert:
		return func(ctx context.Context, e Event) (bool, error) {
			n, err := events.CountDocuments(ctx, bson.D{{Key: "event_id", Value: e.ID}})
			if err != nil || n > 0 {
				return false, err
			}
			return insert(ctx, e)
		}
	case noIndex:
		return insert
	case none, ackFirst:
	}
	return nil
}

// acknowledgeFirst receives as the library never does: what fails after the acknowledgement is in memory alone.
func (w *worker) acknowledgeFirst(ctx context.Context, handler *consume.Consumer) error {
	conn, err := amqp.Dial(w.RabbitURL)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the process ends
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(16, 0, false); err != nil {
		return err
	}
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	deliveries, err := ch.ConsumeWithContext(ctx, w.Queue, "", autoAck, exclusive, noLocal, noWait, nil)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for d := range deliveries {
				w.tell(acknowledged, d.MessageId)
				if d.Ack(false) != nil {
					return
				}
				w.afterTheAck(context.WithoutCancel(ctx), handler, ch, &d)
			}
		})
	}
	workers.Wait()
	if ctx.Err() == nil {
		return errors.New("the connection is lost")
	}
	return nil
}

// afterTheAck tries three times; then all that is left is a log.
func (w *worker) afterTheAck(ctx context.Context, handler *consume.Consumer, ch *amqp.Channel, d *amqp.Delivery) {
	m := &consume.Message{ID: d.MessageId, Source: w.Queue, Body: d.Body}
	for range 3 {
		switch v := handler.Handle(ctx, m); v.Disposition {
		case consume.SetAside:
			//nolint:errcheck // what else could it do
			ch.PublishWithContext(ctx, "", w.Queue+".dead", false, false, amqp.Publishing{MessageId: d.MessageId, Body: d.Body, DeliveryMode: amqp.Persistent})
			return
		case consume.Ack:
			return
		case consume.Retry, consume.Defer, consume.Hold:
		}
	}
}
