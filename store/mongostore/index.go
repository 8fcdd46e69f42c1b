package mongostore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const day = 24 * time.Hour

// ttls are the TTL indexes of a store. A server's TTL index counts a fixed time from a document's date, and lifetimes
// differ: so there are a few, each over its own field, and a document has the field of the shortest that is not shorter
// than its lifetime. A document that may not expire has no such field.
var ttls = []struct {
	name string
	life time.Duration
}{
	{"h1", time.Hour},
	{"d1", day},
	{"d2", 2 * day},   // ForWeb
	{"d14", 14 * day}, // ForQueue
	{"d90", 90 * day},
	{"d365", 365 * day}, // ForFinance
}

// ttlFor returns the name of the TTL index for a lifetime; empty where it is longer than all.
func ttlFor(ms int64) string {
	for _, t := range ttls {
		if ms <= t.life.Milliseconds() {
			return t.name
		}
	}
	return ""
}

func (s *Store) createIndexes(ctx context.Context) error {
	sparse := func(name string, keys bson.D) mongo.IndexModel {
		return mongo.IndexModel{Keys: keys, Options: options.Index().SetName(name).SetSparse(true)}
	}
	models := []mongo.IndexModel{
		sparse("everonce_purge", bson.D{{Key: "pk", Value: 1}, {Key: "pd", Value: 1}}),
		sparse("everonce_results", bson.D{{Key: "qk", Value: 1}, {Key: "pd", Value: 1}}),
	}
	for _, t := range ttls {
		m := sparse("everonce_ttl_"+t.name, bson.D{{Key: "t." + t.name, Value: 1}})
		m.Options.SetExpireAfterSeconds(int32(t.life / time.Second)) //nolint:gosec // at most a year
		models = append(models, m)
	}
	_, err := s.coll.Indexes().CreateMany(ctx, models)
	if hasCode(err, codeNotImplemented) {
		return fmt.Errorf("the server does not have the indexes that the store needs, sparse and with a TTL (use MongoDB): %w", err)
	}
	return err
}

// sameKeys compares the keys of two indexes: fields, their order, and their direction or kind.
func sameKeys(a, b bson.D) bool { return keysText(a) == keysText(b) }

func keysText(keys bson.D) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%q:%v,", k.Key, k.Value)
	}
	return b.String()
}
