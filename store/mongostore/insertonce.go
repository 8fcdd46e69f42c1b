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

// Inserter inserts events, each once: it is the receiver for a queue whose messages end in MongoDB. The event's unique
// index takes the place of a record. An event is complete at its first insert and does not change. A correction is a
// new event, with its own ID, that refers to the original.
//
// It is safe for concurrent use.
type Inserter struct {
	coll  *mongo.Collection
	index Index
}

// NewInserter returns an Inserter for a collection. It returns [ErrNoIndex] for a collection without the unique
// index, because every duplicate would be inserted as a new event. [EnsureIndex] creates the index.
func NewInserter(ctx context.Context, coll *mongo.Collection, index Index) (*Inserter, error) {
	if coll == nil {
		return nil, fmt.Errorf("mongostore: %w: the collection is nil", driver.ErrInvalidArgument)
	}
	if err := checkIndex(ctx, coll, index); err != nil {
		return nil, err
	}
	return &Inserter{coll: durable(coll), index: index}, nil
}

// InsertOnce inserts a document. If the unique index shows that it was inserted before, inserted is false, and the
// existing document is unchanged. A nil error means that the new or existing document is in the journals of a
// majority: acknowledge the message then, and not before. Everything else is an error: a full disk, an election, a
// missing permission, a document that is not valid. Then the message must be delivered again, or go to a dead-letter
// queue. If the error is also [driver.ErrStore], the server cannot be reached, is full, or denies access: other
// documents would fail too, so a consumer should pause.
//
// The server's duplicate-key error (11000) alone does not prove a duplicate. InsertOnce also reads the document with
// these values in the index's fields from a majority. So the violation of another unique index is a [*DuplicateError]
// that names the index. A true duplicate violates both indexes, and is recognised whichever of them the server names.
//
// InsertOnce encodes the document with the driver's defaults, not with a registry or BSON options of the client (a
// bson.Raw is used unchanged). It returns [driver.ErrInvalidArgument] for a document without a value in the index's
// fields, because all such documents would be duplicates of each other.
//
// It also returns [driver.ErrInvalidArgument] for a context whose session is in a transaction: a document inserted
// there is not durable before the commit, and the first duplicate would end the transaction.
//
// InsertOnce does not check that the index exists: [NewInserter] does.
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
		return false, markUnavailable(wrapError(ctx, "insert once", withoutValues(err)))
	}
	there, lookErr := i.coll.CountDocuments(ctx, same, options.Count().SetCollation(plain))
	if lookErr != nil {
		return false, markUnavailable(wrapError(ctx, "insert once: duplicate key, and the document cannot be read", withoutValues(lookErr)))
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

// DuplicateError: a unique index refused the document although the event was not found.
type DuplicateError struct {
	// Index is the name of the violated index, if the server reports it.
	Index string
	// Own reports that the violated index is the Inserter's: the existing event is not on a majority yet, or has been
	// removed in the meantime. The message must be delivered again.
	Own bool
	err error
}

// Error returns a text with the name of the index, and without values.
func (e *DuplicateError) Error() string {
	if e.Own {
		return "mongostore: insert once: the index " + e.Index + " has the event already, and a majority does not have it yet"
	}
	if e.Index == "" {
		return "mongostore: insert once: a unique index was violated, which the server does not name"
	}
	return "mongostore: insert once: another unique index was violated: " + e.Index
}

// Unwrap returns the driver's error. Its text contains the values.
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
