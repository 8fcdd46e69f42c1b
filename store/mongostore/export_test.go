package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
)

// BareHandle is the statements of a transaction without the transaction, on a server that has none.
func BareHandle(s *Store) driver.TxHandle[*mongo.Session] {
	return &txHandle{s: s, in: func(ctx context.Context) context.Context { return ctx }}
}

// Within is the bare handle of a transaction that Begin was asked for with that timeout.
func Within(s *Store, timeout time.Duration) driver.TxHandle[*mongo.Session] {
	return &txHandle{s: s, in: func(ctx context.Context) context.Context { return ctx }, own: true, until: untilOf(timeout)}
}

// BeginClaim claims as Begin does, in a bare handle.
func BeginClaim(ctx context.Context, h driver.TxHandle[*mongo.Session], req driver.ClaimRequest) (driver.ClaimResult, error) {
	return h.(*txHandle).claim(ctx, &req, true)
}

// Last does what rides on a commit, in a bare handle.
func Last(ctx context.Context, h driver.TxHandle[*mongo.Session], req driver.CommitRequest) error {
	return h.(*txHandle).last(ctx, &req)
}

// Over makes a TxStore without asking for transactions.
func Over(s *Store) *TxStore { return &TxStore{s} }

// Unchecked makes an Inserter without asking for the index, of a server that may not be there.
func Unchecked(coll *mongo.Collection, index Index) *Inserter {
	return &Inserter{coll: durable(coll), index: index}
}

// ParseDuplicate returns the index's name and keys from the text and the raw answer of a duplicate-key error.
func ParseDuplicate(text string, raw bson.Raw) (name string, keys bson.D) {
	d := parseDuplicate(text, raw)
	return d.name, d.keys
}

// IsOf reports whether an error is a duplicate on that index.
func IsOf(err error, index Index) bool {
	d, ok := duplicateOf(err)
	return ok && d.of(index)
}

// TTLField returns the name of the TTL index for a lifetime.
func TTLField(life time.Duration) string { return ttlFor(life.Milliseconds()) }

// ReadDocument reads a record as it is stored.
func ReadDocument(raw bson.Raw) (*driver.Record, error) {
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return doc.record()
}

// WriteDocument writes a record as it is stored.
func WriteDocument(rec *driver.Record) (bson.Raw, error) { return bson.Marshal(documentOf(rec, 1)) }

// Unfit returns why an index, as a server lists it, is not the one that is wanted.
func Unfit(listed bson.D, index Index) string {
	raw, err := bson.Marshal(listed)
	if err != nil {
		return err.Error()
	}
	var spec indexSpec
	if err := bson.Unmarshal(raw, &spec); err != nil {
		return err.Error()
	}
	return spec.unfit(index)
}

// Lost reports whether the outcome of a commit that ended with that error is unknown, and returns the error that Commit
// makes of it.
func Lost(err error) (bool, error) { return lost(err), fmt.Errorf("%w: %w", errCommitLost, err) }

// Conflicts reports whether an error says that another transaction was first.
func Conflicts(err error) bool { return conflicts(err) }

// TxOptions returns the options of every transaction.
func TxOptions() (o options.TransactionOptions) {
	for _, set := range txOptions().List() {
		_ = set(&o) //nolint:errcheck // it sets a field
	}
	return o
}

// Failed is what a call makes of an error.
func Failed(ctx context.Context, what string, err error) error { return wrapError(ctx, what, err) }
