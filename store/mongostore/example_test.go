package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mongostore"
)

// exampleDB is an empty database for an example.
func exampleDB(name string) *mongo.Database {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("EVERONCE_TEST_MONGODB_URL")))
	if err != nil {
		log.Fatal(err)
	}
	db := client.Database("everonce_" + name)
	if err := db.Drop(context.Background()); err != nil {
		log.Fatal(err)
	}
	return db
}

func ExampleNew() {
	ctx := context.Background()
	db := exampleDB("example_new")
	store, err := mongostore.New(ctx, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		res, err := everonce.Do(ctx, receiver, everonce.Key{Scope: "charges", ID: "order-7"},
			func(context.Context, *everonce.Attempt) (string, error) { return "receipt 1", nil })
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// executed receipt 1 <nil>
	// replayed receipt 1 <nil>
}

// An event of a queue is inserted once, whatever is delivered twice. A correction is a new event that refers to the
// sealed one.
func ExampleInserter() {
	ctx := context.Background()
	coll := exampleDB("example_inserter").Collection("event")
	index := mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}
	if err := mongostore.EnsureIndex(ctx, coll, index); err != nil {
		log.Fatal(err)
	}
	events, err := mongostore.NewInserter(ctx, coll, index)
	if err != nil {
		log.Fatal(err) // without the unique index there is no start
	}
	payment := bson.D{{Key: "event_id", Value: "e1"}, {Key: "amount", Value: 100}}
	correction := bson.D{{Key: "event_id", Value: "e2"}, {Key: "corrects", Value: "e1"}, {Key: "amount", Value: 90}}
	for _, document := range []bson.D{payment, payment, correction} {
		inserted, err := events.InsertOnce(ctx, document)
		if err != nil {
			log.Fatal(err) // do not acknowledge: the message has to come again
		}
		fmt.Println(inserted)
	}
	// Output:
	// true
	// false
	// true
}

func ExampleEnsureIndex() {
	ctx := context.Background()
	coll := exampleDB("example_index").Collection("event")
	index := mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}
	_, err := mongostore.NewInserter(ctx, coll, index)
	fmt.Println(errors.Is(err, mongostore.ErrNoIndex))
	fmt.Println(mongostore.EnsureIndex(ctx, coll, index))
	_, err = mongostore.NewInserter(ctx, coll, index)
	fmt.Println(err)
	// Output:
	// true
	// <nil>
	// <nil>
}

// On a replica set the record commits with the application's documents. It is compiled with the tests and not run: not
// every server that they talk to has transactions.
func ExampleNewTx() {
	ctx := context.Background()
	db := exampleDB("example_tx")
	store, err := mongostore.NewTx(ctx, db, nil)
	if err != nil {
		log.Fatal(err) // ErrNoTransactions: it is no replica set
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	res, err := everonce.Transact(ctx, receiver, everonce.Key{Scope: "charges", ID: "order-7"},
		func(ctx context.Context, tx *mongo.Session) (string, error) {
			_, err := db.Collection("charge").InsertOne(mongo.NewSessionContext(ctx, tx), bson.D{{Key: "amount", Value: 100}})
			return "charged", err
		})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Value, res.Outcome)
}
