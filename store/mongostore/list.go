package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/driver"
)

const defaultPage = 100

// List implements [driver.Lister]. It reads in the order of IDs until the page is full.
func (s *Store) List(ctx context.Context, req driver.ListRequest) (res driver.ListResult, err error) {
	if res, err = s.list(alone(ctx), req); err != nil {
		return driver.ListResult{}, wrapError(ctx, "list", err)
	}
	return res, nil
}

func (s *Store) list(ctx context.Context, req driver.ListRequest) (res driver.ListResult, err error) {
	if req.Limit <= 0 {
		req.Limit = defaultPage
	}
	if res.Now, err = s.now(ctx); err != nil {
		return res, err
	}
	hide := bson.D{{Key: "rd", Value: 0}, {Key: "rs", Value: 0}}
	if !req.Steps {
		hide = append(hide, bson.E{Key: "s", Value: 0})
	}
	states := make(map[driver.State]bool, len(req.States))
	for _, state := range req.States {
		states[state] = true
	}
	only, err := s.ofKey(ctx, &req)
	if err != nil {
		return res, err
	}
	err = s.scan(ctx, req.Scope, req.After, only, hide, func(found *listed) (more bool) {
		rec, err := found.record()
		if err != nil { // it must be found to be dealt with
			rec = &found.head
		}
		told := rec.State != 0 && rec.Format <= driver.FormatVersion
		if rec.GoneAt(res.Now) || len(states) > 0 && told && !states[rec.StateAt(res.Now)] {
			return true
		}
		if len(res.Records) == req.Limit { // one more: there is a next page
			res.Next = res.Records[len(res.Records)-1].ID
			return false
		}
		rec.Result = driver.SavedResult{}
		res.Records = append(res.Records, *rec)
		return true
	})
	return res, err
}

// ofKey demands the ID and the hash of a key, where they are asked for.
func (s *Store) ofKey(ctx context.Context, req *driver.ListRequest) (only bson.D, err error) {
	if req.Name != "" {
		only = append(only, bson.E{Key: "nm", Value: req.Name})
	}
	if req.KeyHash == (driver.KeyHash{}) {
		return only, nil
	}
	var demand bson.D
	if req.Scope != "" { // the hash follows what stands for it
		first, last := bounds(req.Scope)
		copy(first[8:], req.KeyHash[:])
		copy(last[8:], req.KeyHash[:])
		demand = bson.D{{Key: "$gte", Value: binary(first[:])}, {Key: "$lte", Value: binary(last[:])}}
	} else {
		ids, err := s.withHash(ctx, req.KeyHash)
		if err != nil {
			return nil, err
		}
		demand = bson.D{{Key: "$in", Value: ids}}
	}
	return append(only, bson.E{Key: "$and", Value: bson.A{bson.D{{Key: "_id", Value: demand}}}}), nil
}

// withHash looks through all IDs, and reads their index only.
func (s *Store) withHash(ctx context.Context, hash driver.KeyHash) (bson.A, error) {
	first, last := bounds("")
	all := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: binary(first[:])}, {Key: "$lte", Value: binary(last[:])}}}}
	cursor, err := s.coll.Find(ctx, all, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	found := bson.A{}
	for cursor.Next(ctx) {
		var id driver.RecordID
		_, b, _ := cursor.Current.Lookup("_id").BinaryOK()
		if copy(id[:], b); id.Hash() == hash {
			found = append(found, binary(id[:]))
		}
	}
	return found, cursor.Err()
}

// listed is a document that a scan has found, and what can be read of it in any case.
type listed struct {
	raw  bson.Raw
	head driver.Record
}

func (l *listed) record() (*driver.Record, error) {
	doc, err := decode(l.raw)
	if err != nil {
		return nil, err
	}
	return doc.record()
}

// scan calls fn with the documents of a scope, or of all scopes if it is empty, that match only, in the order of IDs,
// until fn returns false.
func (s *Store) scan(ctx context.Context, scope driver.Scope, after driver.RecordID, only, hide bson.D, fn func(*listed) bool) error {
	first, last := bounds(scope)
	from := bson.E{Key: "$gte", Value: binary(first[:])}
	if after != (driver.RecordID{}) && string(after[:]) >= string(first[:]) {
		from = bson.E{Key: "$gt", Value: binary(after[:])}
	}
	filter := append(bson.D{{Key: "_id", Value: bson.D{from, {Key: "$lte", Value: binary(last[:])}}}}, only...)
	cursor, err := s.coll.Find(ctx, filter,
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(hide).SetBatchSize(defaultPage))
	if err != nil {
		return err
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	for cursor.Next(ctx) {
		found := listed{raw: cursor.Current}
		of, _ := found.raw.Lookup("sc").StringValueOK()
		if found.head.Scope = driver.Scope(of); scope != "" && !found.head.Scope.Within(scope) {
			continue
		}
		_, id, _ := found.raw.Lookup("_id").BinaryOK()
		copy(found.head.ID[:], id)
		found.head.Name, _ = found.raw.Lookup("nm").StringValueOK()
		format, _ := found.raw.Lookup("f").AsInt64OK()
		if found.head.Format = int(format); !fn(&found) {
			return nil
		}
	}
	return cursor.Err()
}

// bounds are the first and the last ID that records of the scope can have.
func bounds(scope driver.Scope) (first, last driver.RecordID) {
	for i := range last {
		last[i] = 0xff
	}
	if scope != "" {
		head := driver.ScopeRange(scope)
		copy(first[:], head[:])
		copy(last[:], head[:])
	}
	return first, last
}
