package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce"
)

// Purge implements [everonce.Store]. A Limit of 0 is 1000. The indexes find what may be due; the server's clock
// decides what is, once more in the writes.
func (s *Store) Purge(ctx context.Context, req everonce.PurgeRequest) (res everonce.PurgeResult, err error) {
	if res, err = s.purge(alone(ctx), req.Limit); err != nil {
		return res, failed(ctx, "purge", err)
	}
	return res, nil
}

func (s *Store) purge(ctx context.Context, limit int) (res everonce.PurgeResult, err error) {
	if limit <= 0 {
		limit = defaultBatch
	}
	now, err := s.now(ctx)
	if err != nil {
		return res, err
	}
	ids, _, err := s.due(ctx, "pk", gone, now, limit)
	if err != nil {
		return res, err
	}
	if len(ids) > 0 {
		deleted, err := s.coll.DeleteMany(ctx, still(ids, gone))
		if err != nil {
			return res, err
		}
		res.Records = int(deleted.DeletedCount)
	}
	if limit -= len(ids); limit == 0 {
		res.More = true
		return res, nil
	}
	if ids, res.More, err = s.due(ctx, "qk", tombstone, now, limit); err != nil || len(ids) == 0 {
		return res, err
	}
	dropped, err := s.coll.UpdateMany(ctx, append(still(ids, tombstone), bson.E{Key: "qk", Value: bson.D{{Key: "$exists", Value: true}}}), bson.D{
		{Key: "$unset", Value: bson.D{{Key: "rc", Value: ""}, {Key: "rd", Value: ""}, {Key: "s", Value: ""}, {Key: "qk", Value: ""}}},
		{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}},
	})
	if err != nil {
		return res, err
	}
	res.Results = int(dropped.ModifiedCount)
	return res, nil
}

// slack is for the dates that lead to a record: they were taken beside those that count.
const slack = 2 * time.Millisecond

// due returns up to limit IDs of records for which cond holds, by the index of that class.
func (s *Store) due(ctx context.Context, class string, cond bson.D, now time.Time, limit int) (ids bson.A, more bool, err error) {
	var ranges bson.A
	for c := range classes {
		ranges = append(ranges, bson.D{{Key: class, Value: int32(c)}, {Key: "pd", Value: bson.D{{Key: "$lte", Value: now.Add(slack - least(c))}}}})
	}
	cursor, err := s.coll.Find(ctx, bson.D{{Key: "$or", Value: ranges}, {Key: "$expr", Value: cond}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)+1))
	if err != nil {
		return nil, false, err
	}
	var found []bson.D
	if err := cursor.All(ctx, &found); err != nil {
		return nil, false, err
	}
	for i, f := range found {
		if i == limit {
			return ids, true, nil
		}
		ids = append(ids, f[0].Value)
	}
	return ids, false, nil
}

// still is satisfied by those of the records for which cond holds.
func still(ids bson.A, cond bson.D) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "$expr", Value: cond}}
}
