package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Complete implements [driver.Store]: one call.
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	if err := fits("complete", len(req.Result.Data)); err != nil {
		return res, err
	}
	ctx, req.Lifetime = alone(ctx), wholeLife(req.Lifetime)
	done, err := s.update(ctx, held(&req.ID, req.Token, req.Nonce), completion(&req))
	if done || err != nil {
		return res, wrapError(ctx, "complete", err)
	}
	err = s.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Complete(rec, req, now)
	})
	return res, wrapError(ctx, "complete", err)
}

// held matches the record that the attempt with that token and nonce holds. A server may keep a date of its clock more
// finely than it returns it, so held compares milliseconds.
func held(id *driver.RecordID, token driver.Token, nonce driver.Nonce) bson.D {
	tick, count := parts(token)
	return bson.D{
		{Key: "_id", Value: binary(id[:])},
		{Key: "n", Value: binary(nonce[:])},
		{Key: "tc", Value: count},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "ti", Value: tick}},
			bson.D{{Key: "ti", Value: bson.D{{Key: "$exists", Value: false}}}, {Key: "c", Value: bson.D{{Key: "$gte", Value: tick}, {Key: "$lt", Value: tick + 1}}}},
		}},
		{Key: "st", Value: int32(driver.StateClaimed)},
		{Key: "f", Value: bson.D{{Key: "$lte", Value: int32(driver.FormatVersion)}}},
	}
}

// write is the change of an update. All times are the server's: the time of the write, and times that follow from it.
type write struct{ clock, set, unset bson.D }

// now adds dates that are the time of the write. Do not use it for dates that mean the same where they are missing:
// drop those, since the server takes each date separately.
func (w *write) now(fields ...string) {
	for _, f := range fields {
		w.clock = append(w.clock, bson.E{Key: f, Value: true})
	}
}

func (w *write) put(field string, value any) { w.set = append(w.set, bson.E{Key: field, Value: value}) }

func (w *write) drop(fields ...string) {
	for _, f := range fields {
		w.unset = append(w.unset, bson.E{Key: f, Value: ""})
	}
}

func (w *write) update() bson.D {
	u := bson.D{{Key: "$currentDate", Value: w.clock}, {Key: "$set", Value: w.set}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: int64(1)}}}}
	if len(w.unset) > 0 {
		u = append(u, bson.E{Key: "$unset", Value: w.unset})
	}
	return u
}

// expires sets when the record goes, or that it does not.
func (w *write) expires(yes bool, life driver.Lifetime) {
	ms := ceil(life.Total())
	w.put("xu", yes)
	w.put("pm", ms)
	if !yes {
		w.drop("pk", "pd")
		return
	}
	w.put("pk", class(ms))
	w.now("pd")
	if name := ttlFor(ms); name != "" {
		w.now("t." + name)
	}
}

func completion(req *driver.CompleteRequest) *write {
	w := &write{}
	retention := ceil(req.Lifetime.Retention)
	w.now("u")
	w.put("st", int32(driver.StateCompleted))
	w.put("rk", int32(req.Result.Kind))
	w.put("rc", req.Result.Codec)
	w.put("rd", req.Result.Data)
	w.put("rs", req.Result.Summary)
	w.put("rt", retention)
	w.put("qk", class(retention))
	w.expires(true, req.Lifetime)
	w.drop("us", "lb", "pb")
	return w
}

// Release implements [driver.Store]: one call, and three for a release by nonce.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	if err := fits("release", len(req.Scope)+len(req.Name)+len(req.ErrorClass)+len(req.Step)); err != nil {
		return res, err
	}
	ctx, req.Lifetime = alone(ctx), wholeLife(req.Lifetime)
	if req.Token != 0 {
		done, err := s.update(ctx, held(&req.ID, req.Token, req.Nonce), release(&req))
		if done || err != nil {
			return res, wrapError(ctx, "release", err)
		}
	}
	err = s.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Release(rec, req, now)
		return next, err
	})
	return res, wrapError(ctx, "release", err)
}

func release(req *driver.ReleaseRequest) *write {
	w := &write{}
	w.now("u")
	w.put("st", int32(req.State))
	w.put("us", req.Step)
	w.put("le", req.ErrorClass)
	w.expires(req.State == driver.StateReleased || req.ExpireUnsettled, req.Lifetime)
	w.drop("lb", "pb")
	return w
}

// update writes to the record that satisfies the filter, if it does.
func (s *Store) update(ctx context.Context, filter bson.D, w *write) (bool, error) {
	res, err := s.coll.UpdateOne(ctx, filter, w.update())
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// fits refuses what has no place in a document.
func fits(what string, size int) error {
	if size > MaxResult {
		return fmt.Errorf("mongostore: %s: %w: %d bytes, the limit is %d", what, driver.ErrTooLarge, size, MaxResult)
	}
	return nil
}
