package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/everonce/everonce/driver"
)

// Store keeps records in MongoDB. It implements [driver.Store], [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.WriteChecker], [driver.IdentityKeeper] and [driver.IdentityReader]. It is safe for
// concurrent use.
//
// Its writes do not join the transaction of a session in a context, as within mongo.Session.WithTransaction. Only
// everonce.DoTx uses a caller's transaction, which is its argument.
type Store struct {
	coll   *mongo.Collection
	purged atomic.Pointer[progress] // where the next purge goes on; nil is the beginning
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.ScopeDeleter   = (*Store)(nil)
	_ driver.HealthChecker  = (*Store)(nil)
	_ driver.WriteChecker   = (*Store)(nil)
	_ driver.IdentityKeeper = (*Store)(nil)
	_ driver.IdentityReader = (*Store)(nil)
)

// MaxResult is the largest result, in bytes, and the largest sum of the results of all steps of a record: the limit
// of a document, less room for the record. If the steps leave no room for a result, the server refuses it with the
// same error, and the operation completes as elided.
const MaxResult = 15 << 20

// layout is the version of the collection's documents and indexes.
const layout = 1

// New returns a store in a database. The caller keeps the client and disconnects it. New creates the collection and
// its indexes if they do not exist, unless [Options].NoMigrate is set. Whatever the client's settings are, the store
// writes with the write concern "majority", journaled, and reads with the read concern "majority" from the primary.
//
// Errors: [driver.ErrInvalidArgument]; [driver.ErrSchema] if there is no store and NoMigrate is set, or if the store
// has another version; and the errors of a server that cannot be reached.
func New(ctx context.Context, db *mongo.Database, opts *Options) (*Store, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("mongostore: %w: the database is nil", driver.ErrInvalidArgument)
	}
	ctx = alone(ctx)
	s := &Store{coll: durable(db.Collection(set.Collection))}
	if !set.NoMigrate {
		if err := s.create(ctx); err != nil {
			return nil, wrapError(ctx, "create", err)
		}
	}
	if err := s.check(ctx); err != nil {
		return nil, wrapError(ctx, "open", err)
	}
	return s, nil
}

// durable returns the collection with the concerns that keep what is acknowledged.
func durable(coll *mongo.Collection) *mongo.Collection {
	journal := true
	return coll.Database().Collection(coll.Name(), options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.Majority().W, Journal: &journal}).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
}

// alone takes what is sent with a context out of the session that the context may hold, and so out of the transaction
// that this may be in: a record that an abort of the caller's took back would have its effect again.
func alone(ctx context.Context) context.Context {
	if mongo.SessionFromContext(ctx) == nil {
		return ctx
	}
	return mongo.NewSessionContext(ctx, nil)
}

// once is the ID of the document that exists once. IDs of records are binary.
const once = "everonce"

// create creates missing documents and indexes. It leaves a collection of another version unchanged.
func (s *Store) create(ctx context.Context) error {
	_, err := s.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: once}},
		bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "layout", Value: layout}}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !taken(err) { // two may create it at once
		return err
	}
	if err := s.check(ctx); err != nil { // before this version's indexes, which remove documents
		return err
	}
	return s.createIndexes(ctx)
}

func (s *Store) check(ctx context.Context) error {
	var found struct {
		Layout int `bson:"layout"`
	}
	switch err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: once}}).Decode(&found); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return fmt.Errorf("%w: the collection %s has no store (mongostore.New creates it)", driver.ErrSchema, s.coll.Name())
	case err != nil:
		return err
	case found.Layout != layout:
		return fmt.Errorf("%w: the collection %s has layout %d, newer than %d: upgrade this process", driver.ErrSchema, s.coll.Name(), found.Layout, layout)
	}
	return nil
}
