package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mongostore"
)

const (
	mongodbCallers = 16
	mongodbKeys    = 500
)

// mongodbBench is a separate database on the server that the tests use. Its round trips are the commands that are sent,
// which take one each.
type mongodbBench struct {
	client   *mongo.Client
	db       *mongo.Database
	byHand   *mongo.Collection
	events   *mongostore.Inserter
	receiver *everonce.Receiver
	commands atomic.Int64
}

var benchEvent = mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}

func mongodb(ctx context.Context) ([]*contest, func() error, error) {
	url := os.Getenv("EVERONCE_TEST_MONGODB_URL")
	if url == "" {
		return nil, nil, errors.New(`no MongoDB: run it by make bench, or set EVERONCE_TEST_MONGODB_URL, or choose others with -only`)
	}
	b := &mongodbBench{}
	if err := b.open(ctx, url); err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.guarded(), b.replays(), b.inserts()}, b.close, nil
}

func (b *mongodbBench) open(ctx context.Context, url string) (err error) {
	monitor := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { b.commands.Add(1) }}
	opts := options.Client().ApplyURI(url).SetMonitor(monitor).SetWriteConcern(writeconcern.Majority())
	if b.client, err = mongo.Connect(opts); err != nil {
		return err
	}
	b.db = b.client.Database("everonce_bench_" + rand.Text())
	b.byHand = b.db.Collection("by_hand")
	store, err := mongostore.New(ctx, b.db, nil)
	if err != nil {
		return err
	}
	if b.receiver, err = everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()}); err != nil {
		return err
	}
	event := b.db.Collection("event")
	if err := mongostore.EnsureIndex(ctx, event, benchEvent); err != nil {
		return err
	}
	if b.events, err = mongostore.NewInserter(ctx, event, benchEvent); err != nil {
		return err
	}
	return b.fill(ctx)
}

// fill does the operations that are replayed later.
func (b *mongodbBench) fill(ctx context.Context) error {
	for n := range int64(mongodbKeys) {
		if err := b.perform(ctx, replayed(n), everonce.Executed); err != nil {
			return err
		}
		if err := b.write(ctx, replayed(n)); err != nil {
			return err
		}
	}
	return nil
}

// replayed is one of the existing keys: fewer than elsewhere, because they are made one by one.
func replayed(n int64) everonce.Key { return knownKey(n % mongodbKeys) }

func (b *mongodbBench) close() error {
	if b.client == nil {
		return nil
	}
	ctx := context.Background()
	var err error
	if b.db != nil {
		err = b.db.Drop(ctx)
	}
	return errors.Join(err, b.client.Disconnect(ctx))
}

func (b *mongodbBench) perform(ctx context.Context, key everonce.Key, want everonce.Outcome) error {
	res, err := everonce.Do(ctx, b.receiver, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
	return expect(res.Outcome, want, err)
}

func handID(key everonce.Key) bson.D {
	return bson.D{{Key: "_id", Value: string(key.Scope) + ":" + key.ID}}
}

// write is a lock and a result by hand: the two writes that there must be.
func (b *mongodbBench) write(ctx context.Context, key everonce.Key) error {
	id := handID(key)
	if _, err := b.byHand.InsertOne(ctx, append(id, bson.E{Key: "state", Value: "processing"})); err != nil {
		return err
	}
	_, err := b.byHand.UpdateOne(ctx, id, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "completed"}, {Key: "result", Value: sampleBytes}}}})
	return err
}

// guarded: new keys, and an effect elsewhere that costs nothing. The number of operations is promised.
func (b *mongodbBench) guarded() *contest {
	bare := &way{name: "bare: insert, update", do: func(ctx context.Context, n int64) error { return b.write(ctx, mailKey(n)) }}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error { return b.perform(ctx, mailKey(n), everonce.Executed) }}
	return &contest{
		store: "MongoDB", mode: "guarded, new keys", callers: mongodbCallers, trips: &b.commands, ways: []*way{bare, ours},
		targets: []target{{
			what: "MongoDB, guarded, new keys: operations per Do", want: 2, atMost: true,
			measured: func() float64 { return float64(ours.trips) / float64(ours.ops) },
		}},
	}
}

func (b *mongodbBench) replays() *contest {
	bare := &way{name: "bare: find", do: func(ctx context.Context, n int64) error {
		var found struct{ Result []byte }
		err := b.byHand.FindOne(ctx, handID(replayed(n))).Decode(&found)
		if err == nil && len(found.Result) == 0 {
			err = errors.New("no result is stored")
		}
		return err
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error { return b.perform(ctx, replayed(n), everonce.Replayed) }}
	return &contest{store: "MongoDB", mode: "guarded, replay", callers: mongodbCallers, trips: &b.commands, ways: []*way{bare, ours}}
}

// inserts: events under their own unique index.
func (b *mongodbBench) inserts() *contest {
	doc := func(n int64) bson.D {
		return bson.D{{Key: "event_id", Value: orderKey(n).ID}, {Key: "body", Value: sampleBytes}}
	}
	bare := &way{name: "bare: insert", do: func(ctx context.Context, n int64) error {
		_, err := b.byHand.InsertOne(ctx, doc(n))
		return err
	}}
	ours := &way{name: "InsertOnce", do: func(ctx context.Context, n int64) error {
		inserted, err := b.events.InsertOnce(ctx, doc(n))
		if err == nil && !inserted {
			err = errors.New("the event is not new")
		}
		return err
	}}
	return &contest{store: "MongoDB", mode: "events, new", callers: mongodbCallers, trips: &b.commands, ways: []*way{bare, ours}}
}
