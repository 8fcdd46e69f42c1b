package mongostore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

var byEvent = mongostore.Index{Name: "event_id", Keys: bson.D{{Key: "event_id", Value: 1}}}

// events is a collection with the unique index on the event's id, and another one on the invoice's number.
func events(t testing.TB) *mongo.Collection {
	t.Helper()
	coll := database(t).Collection(newCollection(t))
	noErr(t, mongostore.EnsureIndex(t.Context(), coll, byEvent))
	unique(t, coll, "invoice", options.Index())
	return coll
}

// inserter is one of that collection, by the event's id.
func inserter(t testing.TB, coll *mongo.Collection) *mongostore.Inserter {
	t.Helper()
	in, err := mongostore.NewInserter(t.Context(), coll, byEvent)
	noErr(t, err)
	return in
}

func unique(t testing.TB, coll *mongo.Collection, field string, opts *options.IndexOptionsBuilder) {
	t.Helper()
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}, Options: opts.SetName(field).SetUnique(true)})
	noErr(t, err)
}

func eventOf(id, invoice string) bson.D {
	return bson.D{{Key: "event_id", Value: id}, {Key: "invoice", Value: invoice}}
}

func count(t testing.TB, coll *mongo.Collection) int64 {
	t.Helper()
	n, err := coll.CountDocuments(t.Context(), bson.D{})
	noErr(t, err)
	return n
}

func TestInsertOnceInsertsOnce(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	for i, want := range []bool{true, false, false} {
		inserted, err := in.InsertOnce(t.Context(), eventOf("e1", "i1"))
		if err != nil || inserted != want {
			t.Errorf("delivery %d: inserted %v, %v; want %v", i+1, inserted, err, want)
		}
	}
	if n := count(t, coll); n != 1 {
		t.Errorf("%d documents, want 1", n)
	}
}

// The first insert stands: a later delivery with another body changes nothing.
func TestInsertOnceNeverModifies(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	first := append(eventOf("e1", "i1"), bson.E{Key: "amount", Value: 1})
	second := append(eventOf("e1", "i1"), bson.E{Key: "amount", Value: 2})
	for i, doc := range []bson.D{first, second} {
		inserted, err := in.InsertOnce(t.Context(), doc)
		if err != nil || inserted != (i == 0) {
			t.Fatalf("delivery %d: inserted %v, %v", i+1, inserted, err)
		}
	}
	var got struct{ Amount int }
	noErr(t, coll.FindOne(t.Context(), bson.D{}).Decode(&got))
	if got.Amount != 1 {
		t.Errorf("the event was changed to %d", got.Amount)
	}
}

func TestInsertOnceOfManyAtOnce(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	var inserted atomic.Int64
	done := make(chan error)
	const callers = 32
	for range callers {
		go func() {
			ok, err := in.InsertOnce(t.Context(), eventOf("e1", "i1"))
			if ok {
				inserted.Add(1)
			}
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if inserted.Load() != 1 || count(t, coll) != 1 {
		t.Errorf("%d callers inserted %d documents, want 1", inserted.Load(), count(t, coll))
	}
}

// Another unique index's 11000 surfaces, with its name and without the values.
func TestInsertOnceAnotherUniqueIndexSurfaces(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	_, err := in.InsertOnce(t.Context(), eventOf("e1", "secret-invoice"))
	noErr(t, err)
	inserted, err := in.InsertOnce(t.Context(), eventOf("e2", "secret-invoice"))
	dup, ok := errors.AsType[*mongostore.DuplicateError](err)
	if inserted || !ok || dup.Index != "invoice" || dup.Own {
		t.Fatalf("inserted %v, %v; want a DuplicateError of the index invoice", inserted, err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells a value: %v", err)
	}
	if !mongo.IsDuplicateKeyError(err) {
		t.Error("the driver's error is lost")
	}
	if n := count(t, coll); n != 1 {
		t.Errorf("%d documents, want 1", n)
	}
}

// A true duplicate may violate several indexes, of which the server names one: it is a duplicate whichever that is.
func TestInsertOnceADuplicateByItsPrimaryKeyToo(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	doc := append(bson.D{{Key: "_id", Value: "the same"}}, eventOf("e1", "i1")...)
	for i := range 2 {
		inserted, err := in.InsertOnce(t.Context(), doc)
		if err != nil || inserted != (i == 0) {
			t.Fatalf("delivery %d: inserted %v, %v", i+1, inserted, err)
		}
	}
	_, err := in.InsertOnce(t.Context(), append(bson.D{{Key: "_id", Value: "the same"}}, eventOf("e2", "i2")...))
	if dup, ok := errors.AsType[*mongostore.DuplicateError](err); !ok || dup.Index != "_id_" {
		t.Errorf("another event with the same _id: %v, want a DuplicateError of _id_", err)
	}
}

// The unique index may be the one of _id.
func TestInsertOnceByID(t *testing.T) {
	t.Parallel()
	coll := database(t).Collection(newCollection(t))
	index := mongostore.Index{Name: "_id_", Keys: bson.D{{Key: "_id", Value: 1}}}
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "other"}})
	noErr(t, err)
	in, err := mongostore.NewInserter(t.Context(), coll, index)
	noErr(t, err)
	for i := range 2 {
		inserted, err := in.InsertOnce(t.Context(), bson.D{{Key: "_id", Value: "e1"}})
		if err != nil || inserted != (i == 0) {
			t.Errorf("delivery %d: inserted %v, %v", i+1, inserted, err)
		}
	}
}

// Documents without an id would all be duplicates of the first.
func TestInsertOnceRefusesADocumentWithoutAnID(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	for name, doc := range map[string]any{
		"missing":     bson.D{{Key: "invoice", Value: "1"}},
		"null":        bson.D{{Key: "event_id", Value: nil}},
		"undefined":   bson.D{{Key: "event_id", Value: bson.Undefined{}}},
		"an array":    bson.D{{Key: "event_id", Value: bson.A{"e1"}}},
		"no document": 7,
	} {
		if _, err := in.InsertOnce(t.Context(), doc); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	if n := count(t, coll); n != 0 {
		t.Errorf("%d documents, want none", n)
	}
}

// Every other error surfaces: a server that is missing, a context that is over, a document that is too large.
func TestInsertOnceEveryOtherErrorSurfaces(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if inserted, err := in.InsertOnce(over, eventOf("e1", "i1")); inserted || !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrStore) {
		t.Errorf("a context that is over: %v, %v", inserted, err)
	}
	nobody, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/").SetServerSelectionTimeout(50 * time.Millisecond))
	noErr(t, err)
	defer nobody.Disconnect(t.Context()) //nolint:errcheck // it never connected
	if inserted, err := mongostore.Unchecked(nobody.Database("x").Collection("x"), byEvent).InsertOnce(t.Context(), eventOf("e1", "i1")); inserted || !errors.Is(err, driver.ErrStore) {
		t.Errorf("no server: %v, %v", inserted, err)
	}
	huge := append(eventOf("e1", "i1"), bson.E{Key: "body", Value: make([]byte, 17<<20)})
	if inserted, err := in.InsertOnce(t.Context(), huge); inserted || !errors.Is(err, driver.ErrTooLarge) || errors.Is(err, driver.ErrStore) {
		t.Errorf("too large: %v, %v", inserted, err)
	}
	if n := count(t, coll); n != 0 {
		t.Errorf("%d documents, want none", n)
	}
}

func TestStartWithoutTheUniqueIndexIsRefused(t *testing.T) {
	t.Parallel()
	hints := map[string]string{
		"no collection": "EnsureIndex", "no index": "EnsureIndex", "not unique": "is not unique", "other keys": "has other keys", "another name": `"x": Index.Name must be`,
	}
	for name, prepare := range map[string]func(coll *mongo.Collection){
		"no collection": func(*mongo.Collection) {},
		"no index": func(coll *mongo.Collection) {
			_, err := coll.InsertOne(t.Context(), eventOf("e1", "i1"))
			noErr(t, err)
		},
		"not unique": func(coll *mongo.Collection) {
			_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: byEvent.Keys, Options: options.Index().SetName(byEvent.Name)})
			noErr(t, err)
		},
		"other keys": func(coll *mongo.Collection) { unique(t, coll, "invoice", options.Index()); rename(t, coll) },
		"another name": func(coll *mongo.Collection) {
			_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: byEvent.Keys, Options: options.Index().SetName("x").SetUnique(true)})
			noErr(t, err)
		},
	} {
		coll := database(t).Collection(newCollection(t))
		prepare(coll)
		_, err := mongostore.NewInserter(t.Context(), coll, byEvent)
		if !errors.Is(err, mongostore.ErrNoIndex) {
			t.Fatalf("%s: NewInserter: %v, want ErrNoIndex", name, err)
		}
		for _, told := range []string{strconv.Quote(byEvent.Name), dbName + "." + coll.Name(), hints[name]} {
			if !strings.Contains(err.Error(), told) {
				t.Errorf("%s: %v, which does not tell %s", name, err, told)
			}
		}
		made := name == "no collection" || name == "no index"
		if err := mongostore.EnsureIndex(t.Context(), coll, byEvent); (err == nil) != made {
			t.Errorf("%s: EnsureIndex: %v", name, err)
		}
		if _, err := mongostore.NewInserter(t.Context(), coll, byEvent); (err == nil) != made {
			t.Errorf("%s: NewInserter after EnsureIndex: %v", name, err)
		}
	}
}

// rename makes an index of the expected name on another field.
func rename(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "other", Value: 1}}, Options: options.Index().SetName(byEvent.Name).SetUnique(true)})
	noErr(t, err)
}

// In a collection whose default collation takes two IDs for one, the index and the look for the event compare bytes.
func TestInsertOnceComparesBytes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]bson.Raw{}
	client := connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		sent[e.CommandName] = append(bson.Raw{}, e.Command...)
	}})
	coll := client.Database(dbName).Collection(newCollection(t))
	for range 2 { // an existing index does
		noErr(t, mongostore.EnsureIndex(t.Context(), coll, byEvent))
	}
	in := inserter(t, coll)
	for _, want := range []bool{true, false} {
		inserted, err := in.InsertOnce(t.Context(), eventOf("e1", "i1"))
		noErr(t, err)
		if inserted != want {
			t.Errorf("inserted: %v, want %v", inserted, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for name, path := range map[string][]string{"createIndexes": {"indexes", "0", "collation", "locale"}, "aggregate": {"collation", "locale"}} {
		if locale, _ := sent[name].Lookup(path...).StringValueOK(); locale != "simple" {
			t.Errorf("%s: the collation is %q, want simple: %v", name, locale, sent[name])
		}
	}
}

// EnsureIndex is for every start. On existing duplicates it fails, and its error contains no value.
func TestEnsureIndex(t *testing.T) {
	t.Parallel()
	coll := database(t).Collection(newCollection(t))
	for range 2 {
		noErr(t, mongostore.EnsureIndex(t.Context(), coll, byEvent))
	}
	dirty := database(t).Collection(newCollection(t))
	for range 2 {
		_, err := dirty.InsertOne(t.Context(), eventOf("secret", "i"))
		noErr(t, err)
	}
	if err := mongostore.EnsureIndex(t.Context(), dirty, byEvent); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("over duplicates: %v, want an error without values", err)
	}
	for name, index := range map[string]mongostore.Index{
		"no name": {Keys: byEvent.Keys}, "no keys": {Name: "x"}, "a text index": {Name: "x", Keys: bson.D{{Key: "a", Value: "text"}}},
	} {
		if err := mongostore.EnsureIndex(t.Context(), coll, index); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	if _, err := mongostore.NewInserter(t.Context(), nil, byEvent); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no collection: %v", err)
	}
}

// Another index with the same keys, which a server may have under another name and collation, does not hide the one
// that is asked for.
func TestTheIndexBesideAnotherOfItsKeys(t *testing.T) {
	t.Parallel()
	coll := database(t).Collection(newCollection(t))
	for _, o := range []*options.IndexOptionsBuilder{
		options.Index().SetName("caseless").SetCollation(&options.Collation{Locale: "en", Strength: 2}),
		options.Index().SetName(byEvent.Name).SetUnique(true),
	} {
		_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: byEvent.Keys, Options: o})
		noErr(t, err)
	}
	inserter(t, coll)
	noErr(t, mongostore.EnsureIndex(t.Context(), coll, byEvent))
}
