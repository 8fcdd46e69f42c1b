package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
)

// ErrNoIndex: the collection does not have the unique index, or has a different one under its name.
var ErrNoIndex = errors.New("mongostore: unique index not found (create it with EnsureIndex)")

// Index is the unique index that distinguishes events.
type Index struct {
	// Name is the name of the index. Required.
	Name string
	// Keys are its fields, each with 1 or -1: bson.D{{"event_id", 1}}. Every document must have a value in each of
	// them, neither null nor an array. Required.
	Keys bson.D
}

func (i Index) check() error {
	if i.Name == "" || len(i.Keys) == 0 {
		return fmt.Errorf("mongostore: %w: an Index needs a name and keys", driver.ErrInvalidArgument)
	}
	for _, k := range i.Keys {
		if direction := fmt.Sprint(k.Value); k.Key == "" || direction != "1" && direction != "-1" {
			return fmt.Errorf("mongostore: %w: the keys of an Index are fields with 1 or -1", driver.ErrInvalidArgument)
		}
	}
	return nil
}

// EnsureIndex creates the unique index if it does not exist. It returns [ErrNoIndex] for an existing index of that
// name or with those keys that is not unique, covers only some of the documents, or has a collation, under which two
// IDs may be equal. Call it at a program's start; on a large collection without the index it takes long. If existing
// documents violate the index, it returns the server's error.
func EnsureIndex(ctx context.Context, coll *mongo.Collection, index Index) error {
	if err := index.check(); err != nil {
		return err
	}
	why, taken, err := unfit(ctx, coll, index)
	switch {
	case err != nil || why == "":
		return err
	case taken:
		return noIndex(coll, index, why)
	}
	model := mongo.IndexModel{Keys: index.Keys, Options: options.Index().SetName(index.Name).SetUnique(true).SetCollation(plain)}
	if _, err := durable(coll).Indexes().CreateOne(ctx, model); err != nil {
		return wrapError(ctx, "create the index "+index.Name, withoutValues(err))
	}
	return checkIndex(ctx, coll, index)
}

// plain compares bytes, also in a collection whose default is another collation.
var plain = &options.Collation{Locale: "simple"}

// checkIndex refuses with [ErrNoIndex] a collection without the unique index.
func checkIndex(ctx context.Context, coll *mongo.Collection, index Index) error {
	if err := index.check(); err != nil {
		return err
	}
	why, _, err := unfit(ctx, coll, index)
	if err != nil || why == "" {
		return err
	}
	return noIndex(coll, index, why)
}

// unfit returns why a collection does not have the index, or nothing. taken is set where another one stands in its
// place.
func unfit(ctx context.Context, coll *mongo.Collection, index Index) (why string, taken bool, err error) {
	cursor, err := durable(coll).Indexes().List(ctx)
	if hasCode(err, codeNoCollection) {
		return "there is no such collection yet: mongostore.EnsureIndex makes both", false, nil
	}
	if err != nil {
		return "", false, wrapError(ctx, "list indexes", err)
	}
	var found []indexSpec
	if err := cursor.All(ctx, &found); err != nil {
		return "", false, wrapError(ctx, "list indexes", err)
	}
	at := slices.IndexFunc(found, func(s indexSpec) bool { return s.Name == index.Name })
	if at < 0 { // beside it there may be others with its keys: of another collation, or on a part of the documents
		at = slices.IndexFunc(found, func(s indexSpec) bool { return sameKeys(s.Keys, index.Keys) })
	}
	if at < 0 {
		return "mongostore.EnsureIndex makes it", false, nil
	}
	why = found[at].unfit(index)
	return why, why != "", nil
}

const codeNoCollection = 26

type indexSpec struct {
	Name      string   `bson:"name"`
	Keys      bson.D   `bson:"key"`
	Unique    bool     `bson:"unique"`
	Partial   bson.Raw `bson:"partialFilterExpression"`
	Collation bson.Raw `bson:"collation"`
}

// unfit returns why an index is not the one that is wanted, or nothing.
func (s *indexSpec) unfit(index Index) string {
	switch {
	case s.Name != index.Name:
		return fmt.Sprintf("its keys have an index of another name, %q: Index.Name must be that name", s.Name)
	case !sameKeys(s.Keys, index.Keys):
		return "the index of that name has other keys"
	case sameKeys(s.Keys, primary.Keys): // unique without saying so
		return ""
	case !s.Unique:
		return "the index of that name is not unique"
	case len(s.Partial) > 0:
		return "the index of that name is partial"
	case len(s.Collation) > 0 && !s.comparesBytes():
		return "the index of that name has a collation"
	}
	return ""
}

func (s *indexSpec) comparesBytes() bool {
	locale, ok := s.Collation.Lookup("locale").StringValueOK()
	return ok && locale == plain.Locale
}

func noIndex(coll *mongo.Collection, index Index, why string) error {
	return fmt.Errorf("%w: %q of %s.%s: %s", ErrNoIndex, index.Name, coll.Database().Name(), coll.Name(), why)
}
