package mongostore_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/store/mongostore"
)

// rawWith is a server's answer with that pattern of keys, as MongoDB gives it; without a pattern, as others do.
func rawWith(t *testing.T, pattern bson.D) bson.Raw {
	t.Helper()
	doc := bson.D{{Key: "code", Value: 11000}}
	if pattern != nil {
		doc = append(doc, bson.E{Key: "keyPattern", Value: pattern})
	}
	raw, err := bson.Marshal(doc)
	noErr(t, err)
	return raw
}

// Both forms of 11000: the pattern of keys of MongoDB, and the index's name in the text. Each that is present must
// match the index.
func TestDuplicateByCodeAndIndex(t *testing.T) {
	t.Parallel()
	const (
		own      = "E11000 duplicate key error collection: shop.event index: event_id dup key: { event_id: \"e1\" }"
		other    = "E11000 duplicate key error collection: shop.event index: invoice dup key: { invoice: \" index: event_id dup key:\" }"
		collated = "E11000 duplicate key error collection: shop.event index: event_id collation: { locale: \"de\" } dup key: { event_id: \"e1\" }"
		tricky   = "E11000 duplicate key error collection: shop. index: event_id index: invoice dup key: { invoice: 1 }"
		silent   = "E11000 duplicate key error"
	)
	mine, others := bson.D{{Key: "event_id", Value: int32(1)}}, bson.D{{Key: "invoice", Value: int32(1)}}
	for name, c := range map[string]struct {
		code    int
		text    string
		pattern bson.D
		want    bool
	}{
		"name and pattern":           {11000, own, mine, true},
		"name alone":                 {11000, own, nil, true},
		"pattern alone":              {11000, silent, mine, true},
		"with a collation":           {11000, collated, mine, true},
		"another index":              {11000, other, others, false},
		"another index, name alone":  {11000, other, nil, false},
		"the name in a collection's": {11000, tricky, nil, false},
		"name without the pattern":   {11000, own, others, false},
		"pattern without the name":   {11000, other, mine, false},
		"descending":                 {11000, silent, bson.D{{Key: "event_id", Value: int32(-1)}}, false},
		"no name and no pattern":     {11000, silent, nil, false},
		"another code":               {11001, own, mine, false},
	} {
		raw := rawWith(t, c.pattern)
		for form, err := range map[string]error{
			"insert":        mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: c.code, Message: c.text, Raw: raw}}},
			"findAndModify": mongo.CommandError{Code: int32(c.code), Message: c.text, Raw: raw}, //nolint:gosec // small
		} {
			if got := mongostore.IsOf(err, byEvent); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, form, got, c.want)
			}
		}
	}
	// A duplicate beside a write that is not on a majority is no answer.
	err := mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}, WriteErrors: mongo.WriteErrors{{Code: 11000, Message: own}}}
	if mongostore.IsOf(err, byEvent) {
		t.Error("a failed write concern is taken for a duplicate")
	}
}

func FuzzParseDuplicate(f *testing.F) {
	f.Add("E11000 duplicate key error collection: shop.event index: event_id dup key: { event_id: 1 }", []byte{5, 0, 0, 0, 0})
	f.Add(" index:  dup key:", []byte("x"))
	f.Fuzz(func(_ *testing.T, text string, raw []byte) { mongostore.ParseDuplicate(text, raw) })
}
