package main

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/internal/testserver"
)

const soon = 3 * time.Minute

// Every event is sent three times, a correction too, and is one document; what is no event is a dead letter.
func TestRun(t *testing.T) {
	broker, database := testserver.URL(t, "rabbitmq"), testserver.URL(t, "mongodb")
	name := "receiver-" + strings.ToLower(rand.Text())
	client, err := mongo.Connect(options.Client().ApplyURI(database))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database(name)
	t.Cleanup(func() {
		if err := errors.Join(db.Drop(context.Background()), client.Disconnect(context.Background())); err != nil {
			t.Error(err)
		}
	})
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})

	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(ctx, broker, name, database, name) }()
	waitFor(t, done, "a consumer", func() bool { _, consumers := look(t, conn, name); return consumers == 1 })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			if _, err := ch.QueueDelete(name+suffix, false, false, false); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		for _, body := range []string{
			`{"event_id":"e-1","cents":100}`, `{"event_id":"e-2","cents":90,"corrects":"e-1"}`, `{"cents":1}`, `{"event_id":"e-3","cents":"many"}`,
		} {
			if err := ch.Publish("", name, true, false, amqp.Publishing{Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var found []Event
	waitFor(t, done, "two documents and six dead letters", func() bool {
		cursor, err := db.Collection("events").Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "event_id", Value: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		found = nil // the driver decodes into existing fields, and leaves those that a document lacks
		if err := cursor.All(t.Context(), &found); err != nil {
			t.Fatal(err)
		}
		letters, _ := look(t, conn, name+".dead")
		return len(found) == 2 && letters == 6
	})
	waitFor(t, done, "an empty queue", func() bool { waiting, _ := look(t, conn, name); return waiting == 0 })
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// The broker removes a consumer from the queue, and requeues its messages, some time later.
	waitFor(t, done, "queue without a consumer", func() bool { _, consumers := look(t, conn, name); return consumers == 0 })
	if waiting, _ := look(t, conn, name); waiting != 0 {
		t.Errorf("%d messages came back", waiting)
	}
	if want := []Event{{ID: "e-1", Cents: 100}, {ID: "e-2", Cents: 90, Corrects: "e-1"}}; !slices.Equal(found, want) {
		t.Errorf("%+v", found)
	}
	letters, err := rabbitonce.DialDeadLetters(t.Context(), broker, rabbitonce.Queue{Name: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := letters.List(t.Context(), consume.Filter{})
	if err = errors.Join(err, letters.Close()); err != nil {
		t.Fatal(err)
	}
	reasons := map[consume.Reason]int{}
	for _, l := range list {
		reasons[l.Reason]++
	}
	if len(reasons) != 2 || reasons[consume.NoKey] != 3 || reasons[consume.Undecodable] != 3 {
		t.Errorf("%v", reasons)
	}
}

// look returns how many messages of a queue are ready, and how many consumers it has.
func look(t *testing.T, conn *amqp.Connection, queue string) (messages, consumers int) {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil { // which closes the channel; the queue does not exist yet
		return 0, 0
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	return q.Messages, q.Consumers
}

// waitFor waits until something is so.
func waitFor(t *testing.T, done <-chan error, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}
