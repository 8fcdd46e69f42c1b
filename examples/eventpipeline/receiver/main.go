// Command receiver inserts the events of a RabbitMQ queue into a MongoDB collection, each once: saved, and then
// acknowledged. It takes BROKER_URL and MONGODB_URL, and runs until it is interrupted.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/mongostore"
)

// Event is what the messages hold, and what is kept.
type Event struct {
	ID       string `json:"event_id" bson:"event_id"`
	Cents    int64  `json:"cents" bson:"cents"`
	Corrects string `json:"corrects,omitempty" bson:"corrects,omitempty"` // the ID of an earlier event
}

var byEvent = mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}

// receiver takes the events of a queue.
func receiver(ctx context.Context, broker, queue string, events *mongostore.Inserter) (*rabbitonce.Consumer, error) {
	handler, err := consume.NewNatural(consume.NaturalSpec[Event]{
		Consumer: "events",
		Key:      consume.JSONPointer("/event_id"),
		Handle: func(ctx context.Context, m *consume.Message, e Event) (inserted bool, err error) {
			return events.InsertOnce(ctx, e)
		},
	})
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(ctx, broker, rabbitonce.Queue{Name: queue}, handler, nil)
}

// run makes the index, and receives until ctx ends.
func run(ctx context.Context, broker, queue, database, name string) (err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(database).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))) }()
	events := client.Database(name).Collection("events")
	if err := mongostore.EnsureIndex(ctx, events, byEvent); err != nil {
		return err
	}
	inserter, err := mongostore.NewInserter(ctx, events, byEvent)
	if err != nil {
		return err
	}
	consumer, err := receiver(ctx, broker, queue, inserter)
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("BROKER_URL"), "events", os.Getenv("MONGODB_URL"), "shop")
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
