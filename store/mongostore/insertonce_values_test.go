package mongostore_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// The value of an event is compared, and never read as a question: a pattern would find another event, and this one's
// message would be acknowledged without it.
func TestInsertOnceOfAPatternIsNoQuestion(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	_, err := in.InsertOnce(t.Context(), eventOf("e1", "i1"))
	noErr(t, err)
	pattern := bson.D{{Key: "event_id", Value: bson.Regex{Pattern: "."}}, {Key: "invoice", Value: "i1"}}
	inserted, err := in.InsertOnce(t.Context(), pattern)
	if dup, ok := errors.AsType[*mongostore.DuplicateError](err); inserted || !ok || dup.Own {
		t.Errorf("inserted %v, %v; want a DuplicateError of the index invoice", inserted, err)
	}
}

// A field of the index may be inside another.
func TestInsertOnceByAFieldInside(t *testing.T) {
	t.Parallel()
	coll := database(t).Collection(newCollection(t))
	index := mongostore.Index{Name: "inside", Keys: bson.D{{Key: "event.id", Value: 1}}}
	noErr(t, mongostore.EnsureIndex(t.Context(), coll, index))
	in, err := mongostore.NewInserter(t.Context(), coll, index)
	noErr(t, err)
	for i := range 2 {
		inserted, err := in.InsertOnce(t.Context(), bson.D{{Key: "event", Value: bson.D{{Key: "id", Value: "e1"}}}})
		if err != nil || inserted != (i == 0) {
			t.Errorf("delivery %d: inserted %v, %v", i+1, inserted, err)
		}
	}
	if _, err := in.InsertOnce(t.Context(), bson.D{{Key: "event.id", Value: "e2"}}); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("a name with a dot in it: %v, want ErrInvalidArgument", err)
	}
}

// Where the duplicate cannot be looked at, it is the server's failure, and no duplicate of any index: the message has
// to come again.
func TestInsertOnceThatCanNotLook(t *testing.T) {
	t.Parallel()
	coll := events(t)
	_, err := inserter(t, coll).InsertOnce(t.Context(), eventOf("e1", "i1"))
	noErr(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "aggregate" { // the count
			cancel()
		}
	}})
	in := mongostore.Unchecked(client.Database(dbName).Collection(coll.Name()), byEvent)
	inserted, err := in.InsertOnce(ctx, eventOf("e1", "i1"))
	if _, dup := errors.AsType[*mongostore.DuplicateError](err); inserted || dup || !errors.Is(err, driver.ErrStore) || !errors.Is(err, context.Canceled) {
		t.Errorf("inserted %v, %v; want ErrStore and no DuplicateError", inserted, err)
	}
}

// An index that lets duplicates in is not the one that is wanted, whatever its name; not every server makes such a one.
func TestAnIndexThatLetsDuplicatesIn(t *testing.T) {
	t.Parallel()
	spec := func(more ...bson.E) bson.D {
		return append(bson.D{{Key: "name", Value: byEvent.Name}, {Key: "key", Value: byEvent.Keys}}, more...)
	}
	unique := bson.E{Key: "unique", Value: true}
	collation := func(locale string) bson.E {
		return bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: locale}}}
	}
	for what, c := range map[string]struct {
		spec bson.D
		fits bool
	}{
		"unique":            {spec(unique), true},
		"not unique":        {spec(), false},
		"partial":           {spec(unique, bson.E{Key: "partialFilterExpression", Value: bson.D{{Key: "invoice", Value: bson.D{{Key: "$exists", Value: true}}}}}), false},
		"of a language":     {spec(unique, collation("en")), false},
		"of bytes, by name": {spec(unique, collation("simple")), true},
		"of another field":  {bson.D{{Key: "name", Value: byEvent.Name}, {Key: "key", Value: bson.D{{Key: "other", Value: 1}}}, unique}, false},
		"of hashes":         {bson.D{{Key: "name", Value: byEvent.Name}, {Key: "key", Value: bson.D{{Key: "event_id", Value: "hashed"}}}, unique}, false},
		"of another name":   {bson.D{{Key: "name", Value: "x"}, {Key: "key", Value: byEvent.Keys}, unique}, false},
		"of one field more": {bson.D{{Key: "name", Value: byEvent.Name}, {Key: "key", Value: append(bson.D{{Key: "tenant", Value: 1}}, byEvent.Keys...)}, unique}, false},
	} {
		if why := mongostore.Unfit(c.spec, byEvent); (why == "") != c.fits {
			t.Errorf("%s: %q", what, why)
		}
	}
}
