package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// errGone is the error of a collection without the document that exists once.
var errGone = fmt.Errorf("%w: the collection was emptied (mongostore.New creates it again)", driver.ErrSchema)

// stage is an aggregation's.
type stage = bson.D

func timed() stage { return stage{{Key: "$addFields", Value: bson.D{{Key: "now", Value: "$$NOW"}}}} }

// read reads a record and the server's time. It reads a second document, because the time is needed without a record
// too. doc is nil if the record does not exist.
func (s *Store) read(ctx context.Context, id *driver.RecordID) (doc *document, now time.Time, err error) {
	match := stage{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{binary(id[:]), once}}}}}}}
	docs, err := s.aggregate(ctx, match, timed())
	if err != nil {
		return nil, now, err
	}
	for _, raw := range docs {
		if _, isRecord := raw.Lookup("_id").StringValueOK(); isRecord {
			ms, ok := raw.Lookup("now").DateTimeOK()
			if !ok {
				return nil, now, errors.New("the server does not report its time")
			}
			now = at(bson.DateTime(ms))
			continue
		}
		if doc, err = decode(raw); err != nil {
			return nil, now, err
		}
	}
	if now.IsZero() {
		return nil, now, errGone
	}
	return doc, now, nil
}

func (s *Store) aggregate(ctx context.Context, stages ...stage) (docs []bson.Raw, err error) {
	cursor, err := s.coll.Aggregate(ctx, mongo.Pipeline(stages))
	if err != nil {
		return nil, err
	}
	return docs, cursor.All(ctx, &docs)
}

func decode(raw bson.Raw) (*document, error) {
	doc := new(document)
	if err := bson.Unmarshal(raw, doc); err != nil { // its text may quote what it has read
		format, _ := raw.Lookup("f").AsInt64OK()
		return nil, unreadable(format, "a field has another type")
	}
	return doc, nil
}

// unreadable returns the error of a document that lacks what this version writes: a newer version need not write it.
func unreadable(format int64, what string) error {
	if format > driver.FormatVersion {
		return fmt.Errorf("%w: %s", driver.ErrNewerRecord, what)
	}
	return fmt.Errorf("%w: %s", driver.ErrCorruptRecord, what)
}

// now asks the server for its time.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	_, now, err := s.read(ctx, new(driver.RecordID))
	return now, err
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	return s.get(alone(ctx), req)
}

func (s *Store) get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	doc, now, err := s.read(ctx, &req.ID)
	if err != nil {
		return res, wrapError(ctx, "get", err)
	}
	res.Now = now
	if doc == nil {
		return res, nil
	}
	rec, err := doc.record()
	if err != nil {
		return driver.GetResult{}, wrapError(ctx, "get", err)
	}
	if !rec.GoneAt(now) {
		res.Found, res.Record = true, *rec
	}
	return res, nil
}
