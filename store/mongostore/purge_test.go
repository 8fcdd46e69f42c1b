package mongostore_test

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// A round of purges passes twice over a record that may not be removed, and does not pass over it in each call. A
// record that becomes due behind the round's place is removed all the same.
func TestAPurgeGoesOn(t *testing.T) {
	t.Parallel()
	var looked []bson.RawValue // where the purge has looked
	client := connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if ranges, ok := e.Command.Lookup("filter", "$or").ArrayOK(); ok && e.CommandName == "find" {
			looked = append(looked, bson.RawValue{Type: bson.TypeArray, Value: bytes.Clone(ranges)})
			if sort := e.Command.Lookup("sort").String(); sort != `{"pk": {"$numberInt":"1"},"pd": {"$numberInt":"1"}}` && sort != `{"qk": {"$numberInt":"1"},"pd": {"$numberInt":"1"}}` {
				t.Errorf("the purge goes on by an order that is not its index's: %s", sort)
			}
		}
	}})
	ctx, name := t.Context(), newCollection(t)
	s, err := mongostore.New(ctx, client.Database(dbName), &mongostore.Options{Collection: name})
	noErr(t, err)
	coll := database(t).Collection(name)
	past := time.Now().Add(-100 * time.Hour)
	over := func(what string, n int, since time.Time, odd bson.D) {
		for i := range n {
			key := everonce.Key{Scope: driver.ScopeOf(what), ID: strconv.Itoa(i)}
			doneIn(t, s, key)
			id := key.RecordID()
			_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}},
				bson.D{{Key: "$set", Value: append(bson.D{{Key: "c", Value: since}, {Key: "u", Value: since}, {Key: "pd", Value: since}}, odd...)}, {Key: "$unset", Value: bson.D{{Key: "t", Value: ""}}}})
			noErr(t, err)
		}
	}
	const damaged, due, late, limit = 30, 40, 3, 10
	over("damaged", damaged, past.Add(-time.Hour), bson.D{{Key: "pm", Value: "x"}, {Key: "rt", Value: "x"}})
	over("due", due, past, nil)
	removed := 0
	for calls := 1; ; calls++ {
		res, err := s.Purge(ctx, driver.PurgeRequest{Limit: limit})
		noErr(t, err)
		removed += res.Records
		if calls == due/limit {
			over("late", late, past.Add(-2*time.Hour), nil)
		}
		if !res.More {
			break
		}
	}
	if left, err := coll.CountDocuments(ctx, bson.D{{Key: "pd", Value: bson.D{{Key: "$exists", Value: true}}}}); removed != due+late || left != damaged || err != nil {
		t.Errorf("%d records were removed, want %d; %d are left, want %d; %v", removed, due+late, left, damaged, err)
	}
	passed := int64(0)
	for _, ranges := range looked {
		n, err := coll.CountDocuments(ctx, bson.D{{Key: "$or", Value: ranges}})
		noErr(t, err)
		passed += n
	}
	if most := int64(2 * 2 * damaged); passed == 0 || passed > most { // by the index of records, and by the index of results
		t.Errorf("damaged records were passed over %d times, want at most %d", passed, most)
	}
}

// Results that come due as fast as a purge removes them do not keep records from being removed.
func TestAPurgeOfResultsRemovesRecordsToo(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), newCollection(t)
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	coll := database(t).Collection(name)
	since := func(what string, i int, lifetime driver.Lifetime, ago time.Duration) {
		key := everonce.Key{Scope: driver.ScopeOf(what), ID: strconv.Itoa(i)}
		doneFor(t, s, key, lifetime)
		id, past := key.RecordID(), time.Now().Add(-ago)
		_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "c", Value: past}, {Key: "u", Value: past}, {Key: "pd", Value: past}}}, {Key: "$unset", Value: bson.D{{Key: "t", Value: ""}}}})
		noErr(t, err)
	}
	results := driver.Lifetime{Retention: time.Hour, Remember: 1000 * time.Hour}
	const limit = 5
	for i := range 4 * limit {
		since("result", i, results, 2*time.Hour)
	}
	removed := 0
	for call := range 6 {
		res, err := s.Purge(ctx, driver.PurgeRequest{Limit: limit})
		noErr(t, err)
		removed += res.Records
		since("record", call, driver.Lifetime{Retention: time.Hour, Remember: time.Hour}, 3*time.Hour)
		for i := range limit {
			since("more", call*limit+i, results, 2*time.Hour)
		}
	}
	if removed == 0 {
		t.Error("six calls have removed no record")
	}
}
