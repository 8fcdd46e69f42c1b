package mongostore

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
)

// Inserter receives events, each once: it is the receiver of a queue whose messages end in MongoDB. It needs no
// record of operations, because the event's own unique index is one. All that it can do is insert: an event is
// complete at its first insert, and stays as it is. A correction is a new event, with an ID of its own, that refers
// to the original.
//
// It is safe for concurrent use.
type Inserter struct {
	coll  *mongo.Collection
	index Index
}

// NewInserter makes a receiver of a collection. It refuses with [ErrNoIndex] a collection without the unique index,
// because every duplicate would be another event. [EnsureIndex] makes the index.
func NewInserter(ctx context.Context, coll *mongo.Collection, index Index) (*Inserter, error) {
	if coll == nil {
		return nil, fmt.Errorf("mongostore: %w: the collection is nil", driver.ErrInvalidArgument)
	}
	if err := checkIndex(ctx, coll, index); err != nil {
		return nil, err
	}
	return &Inserter{coll: durable(coll), index: index}, nil
}

// InsertOnce inserts a document. If the unique index shows that it has been inserted before, inserted is false, and
// the document that is there stays. With a nil error the document, this one or that one, is on a majority, in the
// journal: then the message may be acknowledged, and not before. Everything else is an error: a full disk, an
// election, a missing permission, a document that is not valid. Then the message must come again, or go to a dead
// letter. An error that also is [driver.ErrStore] is about the server, which cannot be reached, or is full, or does
// not let this program in: any other document would get it too, so a consumer should pause.
//
// The server's duplicate-key error (11000) alone is not enough. It counts if the document with these values in the
// index's fields can be read from a majority. So the violation of another unique index is an error, a
// [*DuplicateError] that names the index. A true duplicate violates both indexes, and is a duplicate whichever of
// them the server names.
//
// The document is what the driver can encode without settings: a registry and BSON options that the client was given
// do not count (a bson.Raw is taken as it is). A document without a value in the index's fields is refused with
// [driver.ErrInvalidArgument]: all such documents would be duplicates of each other.
//
// A context whose session is in a transaction is refused with [driver.ErrInvalidArgument]: what is inserted in it is
// not kept before that commits, and the first duplicate would end it.
//
// InsertOnce does not check that the index exists: NewInserter has.
func (i *Inserter) InsertOnce(ctx context.Context, document any) (inserted bool, err error) {
	if session := mongo.SessionFromContext(ctx); session != nil && session.TransactionRunning() {
		return false, fmt.Errorf("mongostore: insert once: %w: the context's session is in a transaction", driver.ErrInvalidArgument)
	}
	raw, err := bson.Marshal(document)
	if err != nil {
		return false, fmt.Errorf("mongostore: insert once: %w: the document cannot be encoded: %w", driver.ErrInvalidArgument, err)
	}
	if len(raw) > maxDocument {
		return false, fmt.Errorf("mongostore: insert once: %w: the document has %d bytes, MongoDB's limit is %d", driver.ErrTooLarge, len(raw), maxDocument)
	}
	same, err := valuesOf(raw, i.index)
	if err != nil {
		return false, err
	}
	_, err = i.coll.InsertOne(ctx, bson.Raw(raw))
	if err == nil {
		return true, nil
	}
	which, is := duplicateOf(err)
	if !is {
		return false, away(failed(ctx, "insert once", withoutValues(err)))
	}
	there, lookErr := i.coll.CountDocuments(ctx, same, options.Count().SetCollation(plain))
	if lookErr != nil {
		return false, away(failed(ctx, "insert once: duplicate key, and the document cannot be read", withoutValues(lookErr)))
	}
	if there == 0 {
		return false, &DuplicateError{Index: which.name, Own: which.of(i.index), err: err}
	}
	return false, nil
}

// maxDocument is MongoDB's limit, in bytes.
const maxDocument = 16 << 20

// valuesOf returns the filter that the document itself satisfies.
func valuesOf(doc bson.Raw, index Index) (filter bson.D, err error) {
	for _, k := range index.Keys {
		v, err := doc.LookupErr(strings.Split(k.Key, ".")...)
		switch {
		case err != nil, v.Type == bson.TypeNull, v.Type == bson.TypeUndefined:
			return nil, fmt.Errorf("mongostore: insert once: %w: the document has no value in %q, of the index %s", driver.ErrInvalidArgument, k.Key, index.Name)
		case v.Type == bson.TypeArray:
			return nil, fmt.Errorf("mongostore: insert once: %w: the document has an array in %q, of the index %s", driver.ErrInvalidArgument, k.Key, index.Name)
		}
		filter = append(filter, bson.E{Key: k.Key, Value: bson.D{{Key: "$eq", Value: v}}})
	}
	return filter, nil
}

// DuplicateError says that a unique index refused the document although the event is not there.
type DuplicateError struct {
	// Index is the name of the index that was violated, if the server tells it.
	Index string
	// Own says that it was the index asked for: the event that is there is not on a majority yet, or has been removed
	// in the meantime. The message must come again.
	Own bool
	err error
}

// Error names the index, and no value.
func (e *DuplicateError) Error() string {
	if e.Own {
		return "mongostore: insert once: the index " + e.Index + " has the event already, and a majority does not have it yet"
	}
	if e.Index == "" {
		return "mongostore: insert once: a unique index was violated, which the server does not name"
	}
	return "mongostore: insert once: another unique index was violated: " + e.Index
}

// Unwrap returns the driver's error, whose text holds the values.
func (e *DuplicateError) Unwrap() error { return e.err }

// withoutValues hides the text of an error that quotes values.
func withoutValues(err error) error {
	if !strings.Contains(err.Error(), "dup key:") {
		return err
	}
	return &quietError{err}
}

type quietError struct{ err error }

func (e *quietError) Error() string {
	text, _, _ := strings.Cut(e.err.Error(), " dup key:")
	return text
}
func (e *quietError) Unwrap() error { return e.err }
