package mongostore_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/golden"
	"github.com/everonce/everonce/store/mongostore"
)

// This version reads what earlier ones have left in a collection, and writes what they read in other processes.
func TestFormat(t *testing.T) {
	t.Parallel()
	golden.Test(t, "mongo", func(t *testing.T, _ int) golden.Harness {
		name := newCollection(t)
		store, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: name})
		noErr(t, err)
		c := collection{TB: t, coll: database(t).Collection(name)}
		return golden.Harness{Store: repeating{store}, Load: c.load, Dump: c.dump}
	})
}

// collection is what a store keeps. A record is a document, its fields in the order of their names.
type collection struct {
	testing.TB
	coll *mongo.Collection
}

func (c collection) load(id driver.RecordID, stored string) {
	c.Helper()
	_, err := c.coll.DeleteOne(c.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}})
	noErr(c, err)
	var doc bson.D
	noErr(c, bson.UnmarshalExtJSON([]byte(stored), true, &doc))
	_, err = c.coll.InsertOne(c.Context(), doc)
	noErr(c, err)
}

func (c collection) dump(id driver.RecordID, times golden.Times) string {
	c.Helper()
	var doc bson.D
	noErr(c, c.coll.FindOne(c.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}).Decode(&doc))
	lengths(doc, times)
	text, err := bson.MarshalExtJSON(fixed(doc, times), true, false)
	noErr(c, err)
	return strings.ReplaceAll(string(text), `,"`, ",\n\"") + "\n" // a field in a line; extended JSON writes no blanks
}

// lengths are fields that count the milliseconds from a date to another: from the first of these that there is.
func lengths(doc bson.D, times golden.Times) {
	for name, bases := range map[string][]string{"lm": {"lb", "u", "c"}, "rt": {"cp", "u", "c"}, "pm": {"pb", "u", "c"}} {
		for _, base := range bases {
			from, ok := find(doc, base).(bson.DateTime)
			if !ok {
				continue
			}
			for i := range doc {
				if ms, _ := doc[i].Value.(int64); doc[i].Key == name && ms != 0 {
					doc[i].Value = int64(fixedDate(from+bson.DateTime(ms), times) - fixedDate(from, times))
				}
			}
			break
		}
	}
}

func find(doc bson.D, name string) any {
	for _, e := range doc {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// fixedDate allows for a server that reads its clock anew for each date of a write, in whichever order.
func fixedDate(d bson.DateTime, times golden.Times) bson.DateTime {
	const (
		micros = int64(time.Millisecond / time.Microsecond)
		around = golden.Apart / 3
	)
	return bson.DateTime(times(int64(d)*micros, around, around) / micros)
}

// fixed returns a value with all dates as the files have them, and fields in the order of their names.
func fixed(value any, times golden.Times) any {
	switch v := value.(type) {
	case bson.D:
		for i := range v {
			v[i].Value = fixed(v[i].Value, times)
		}
		slices.SortFunc(v, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
	case bson.A:
		for i := range v {
			v[i] = fixed(v[i], times)
		}
	case bson.DateTime:
		return fixedDate(v, times)
	}
	return value
}

// So it is with what the store keeps once, and with its indexes, which two versions make and use together.
func TestFormatOfTheSettingsAndTheIndexes(t *testing.T) {
	t.Parallel()
	coll := database(t).Collection(newCollection(t))
	store, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: coll.Name()})
	noErr(t, err)
	golden.Identity(t, store)
	var kept bson.D
	noErr(t, coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: "everonce"}}).Decode(&kept))
	want := bson.D{{Key: "_id", Value: "everonce"}, {Key: "layout", Value: int32(1)}, {Key: "identity", Value: bson.Binary{Data: golden.Check[:]}}}
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("the settings are %v, want %v", kept, want)
	}
	indexes, err := coll.Indexes().ListSpecifications(t.Context())
	noErr(t, err)
	var got []string
	for _, ix := range indexes {
		got = append(got, fmt.Sprint(ix.Name, " ", ix.KeysDocument))
	}
	slices.Sort(got)
	if names := []string{
		`_id_ {"_id": {"$numberInt":"1"}}`,
		`everonce_purge {"pk": {"$numberInt":"1"},"pd": {"$numberInt":"1"}}`,
		`everonce_results {"qk": {"$numberInt":"1"},"pd": {"$numberInt":"1"}}`,
		`everonce_ttl_d1 {"t.d1": {"$numberInt":"1"}}`,
		`everonce_ttl_d14 {"t.d14": {"$numberInt":"1"}}`,
		`everonce_ttl_d2 {"t.d2": {"$numberInt":"1"}}`,
		`everonce_ttl_d365 {"t.d365": {"$numberInt":"1"}}`,
		`everonce_ttl_d90 {"t.d90": {"$numberInt":"1"}}`,
		`everonce_ttl_h1 {"t.h1": {"$numberInt":"1"}}`,
	}; !slices.Equal(got, names) {
		t.Errorf("the indexes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(names, "\n"))
	}
}
