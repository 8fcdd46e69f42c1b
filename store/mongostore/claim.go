package mongostore

import (
	"context"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Claim implements [driver.Store] with one call for a new key, two for a known one, and three for a further attempt.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	if err := fits("claim", len(req.Scope)+len(req.Name)+len(req.Owner)); err != nil {
		return res, err
	}
	ctx, req.Lease, req.Lifetime = alone(ctx), whole(req.Lease), wholeLife(req.Lifetime)
	if req.Take < driver.TakeToSettle {
		if begun, err := s.begin(ctx, &req, &res); begun || err != nil {
			return res, wrapError(ctx, "claim", err)
		}
	}
	err = s.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Claim(rec, req, now)
		return next, err
	})
	return res, wrapError(ctx, "claim", err)
}

// begin inserts the record of a new key, with the server's time, if none exists. It uses plain operators only: MongoDB
// refuses an upsert whose filter has $expr with $$NOW, and not every server that speaks its protocol has pipelines in
// updates.
func (s *Store) begin(ctx context.Context, req *driver.ClaimRequest, res *driver.ClaimResult) (begun bool, err error) {
	clock := bson.D{{Key: "c", Value: true}}
	life := ceil(req.Lifetime.Total())
	set := bson.D{
		{Key: "rev", Value: int64(1)},
		{Key: "f", Value: int32(driver.FormatVersion)},
		{Key: "sc", Value: string(req.Scope)},
		{Key: "nm", Value: req.Name},
		{Key: "st", Value: int32(driver.StateClaimed)},
		{Key: "tc", Value: int64(0)},
		{Key: "n", Value: binary(req.Nonce[:])},
		{Key: "o", Value: req.Owner},
		{Key: "a", Value: int32(1)},
		{Key: "lm", Value: ceil(req.Lease)},
		{Key: "rt", Value: int64(0)},
		{Key: "pm", Value: life},
		{Key: "xu", Value: req.ExpireUnsettled},
	}
	if !req.Fingerprint.IsZero() {
		set = append(set, bson.E{Key: "fa", Value: req.Fingerprint.Alg}, bson.E{Key: "fs", Value: req.Fingerprint.Sum[:]})
	}
	if req.ExpireUnsettled {
		clock = append(clock, bson.E{Key: "pd", Value: true})
		set = append(set, bson.E{Key: "pk", Value: class(life)})
	}
	var d struct {
		Created bson.DateTime `bson:"c"`
	}
	err = s.coll.FindOneAndUpdate(ctx, noMatch(&req.ID), bson.D{{Key: "$currentDate", Value: clock}, {Key: "$setOnInsert", Value: set}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(bson.D{{Key: "c", Value: 1}})).Decode(&d)
	if taken(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now := at(d.Created)
	_, *res, err = transition.Claim(nil, *req, now)
	return true, err
}

// noMatch matches no document, whatever it contains: an upsert with it inserts, or violates the unique index of _id. It
// is a comparison, from which the server copies nothing into the new document, and not an $expr, which an upsert may
// not have with the server's time.
func noMatch(id *driver.RecordID) bson.D {
	return bson.D{{Key: "_id", Value: binary(id[:])}, {Key: "st", Value: bson.D{{Key: "$lt", Value: math.Inf(-1)}}}}
}
