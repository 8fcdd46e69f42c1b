package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
)

// Purge implements [driver.Store]. A Limit of 0 is 1000. The indexes find candidates; the writes check them by the
// server's clock.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	if res, err = s.purge(alone(ctx), req.Limit); err != nil {
		return res, wrapError(ctx, "purge", err)
	}
	return res, nil
}

func (s *Store) purge(ctx context.Context, limit int) (res driver.PurgeResult, err error) {
	if limit <= 0 {
		limit = defaultBatch
	}
	var from progress
	if p := s.purged.Load(); p != nil {
		from = *p
	}
	for {
		reached, left, err := s.purgeFrom(ctx, from, limit, &res)
		switch {
		case err != nil:
			return res, err
		case left == 0:
			if reached.records == through { // results that come due as fast as they go must not keep records from going
				reached.records = place{}
			}
			s.purged.Store(&reached)
			res.More = true
			return res, nil
		case from == progress{}:
			s.purged.Store(&from)
			return res, nil
		}
		from, limit = progress{}, left // what has become due in front of it
	}
}

// place is one in an index of what may be due: behind all that were looked at.
type place struct {
	class int32
	from  bson.DateTime
}

// progress is how far a round of a purge has got, call by call. So what may not be removed, being damaged or not due
// yet, is passed over twice in a round, and not in each call.
type progress struct{ records, results place }

// through is behind all.
var through = place{class: classes}

// purgeFrom purges up to limit of what is due from a place on, and returns how many of them may be left.
func (s *Store) purgeFrom(ctx context.Context, from progress, limit int, res *driver.PurgeResult) (reached progress, left int, err error) {
	reached, left = from, limit
	now, err := s.now(ctx)
	if err != nil {
		return reached, left, err
	}
	ids, err := s.due(ctx, "pk", gone, now, &reached.records, left)
	if err != nil {
		return reached, left, err
	}
	if len(ids) > 0 {
		deleted, err := s.coll.DeleteMany(ctx, still(ids, gone))
		if err != nil {
			return reached, left, err
		}
		res.Records += int(deleted.DeletedCount)
	}
	if left -= len(ids); left == 0 {
		return reached, left, nil
	}
	ids, err = s.due(ctx, "qk", tombstone, now, &reached.results, left)
	if err != nil || len(ids) == 0 {
		return reached, left, err
	}
	dropped, err := s.coll.UpdateMany(ctx, append(still(ids, tombstone), bson.E{Key: "qk", Value: bson.D{{Key: "$exists", Value: true}}}), bson.D{
		{Key: "$unset", Value: bson.D{{Key: "rc", Value: ""}, {Key: "rd", Value: ""}, {Key: "s", Value: ""}, {Key: "qk", Value: ""}}},
		{Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}},
	})
	if err != nil {
		return reached, left, err
	}
	res.Results += int(dropped.ModifiedCount)
	return reached, left - len(ids), nil
}

// slack is for the dates that lead to a record: they were taken beside the dates that decide.
const slack = 2 * time.Millisecond

// due returns up to limit IDs of records for which cond holds, by the index of that class, and moves the place behind
// what it has looked at.
func (s *Store) due(ctx context.Context, class string, cond bson.D, now time.Time, from *place, limit int) (ids bson.A, err error) {
	var ranges bson.A
	for c := from.class; c < classes; c++ {
		dates := bson.D{{Key: "$lte", Value: now.Add(slack - least(int(c)))}}
		if c == from.class && from.from != 0 {
			dates = append(dates, bson.E{Key: "$gte", Value: from.from})
		}
		ranges = append(ranges, bson.D{{Key: class, Value: c}, {Key: "pd", Value: dates}})
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	cursor, err := s.coll.Find(ctx, bson.D{{Key: "$or", Value: ranges}, {Key: "$expr", Value: cond}}, options.Find().
		SetProjection(bson.D{{Key: class, Value: 1}, {Key: "pd", Value: 1}}).SetSort(bson.D{{Key: class, Value: 1}, {Key: "pd", Value: 1}}).SetLimit(int64(limit)))
	if err != nil {
		return nil, err
	}
	var found []struct {
		ID      any           `bson:"_id"`
		Records int32         `bson:"pk"`
		Results int32         `bson:"qk"`
		From    bson.DateTime `bson:"pd"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	*from = through
	for i := range found {
		f := &found[i]
		ids = append(ids, f.ID)
		if len(ids) == limit {
			*from = place{class: max(f.Records, f.Results), from: f.From}
		}
	}
	return ids, nil
}

// still matches the given records for which cond holds.
func still(ids bson.A, cond bson.D) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "$expr", Value: cond}}
}
