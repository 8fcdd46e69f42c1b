package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
)

// defaultBatch is the limit of a deletion, or a purge, that names none.
const defaultBatch = 1000

// DeleteScope implements [everonce.ScopeDeleter]. A Limit of 0 is 1000. A request without a scope, which would be everybody's, is refused.
func (s *Store) DeleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (res everonce.DeleteScopeResult, err error) {
	if res, err = s.deleteScope(ctx, req); err != nil {
		return res, failed(ctx, "delete scope", err)
	}
	return res, nil
}

func (s *Store) deleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (res everonce.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, err
	}
	if req.Limit <= 0 {
		req.Limit = defaultBatch
	}
	now, err := s.now(ctx)
	if err != nil {
		return res, err
	}
	if err := aMilli(ctx); err != nil {
		return res, err
	}
	var ids bson.A
	hide := bson.D{{Key: "rd", Value: 0}, {Key: "rs", Value: 0}, {Key: "s", Value: 0}}
	err = s.scan(ctx, req.Scope, everonce.RecordID{}, hide, func(rec *everonce.Record) bool {
		if rec.StateAt(now) == everonce.StateClaimed {
			return true
		}
		if len(ids) == req.Limit {
			res.More = true
			return false
		}
		ids = append(ids, binary(rec.ID[:]))
		return true
	})
	if err != nil || len(ids) == 0 {
		return res, err
	}
	deleted, err := s.coll.DeleteMany(ctx, still(ids, all(inserted, bson.D{{Key: "$not", Value: bson.A{live}}})))
	if err != nil {
		return res, err
	}
	res.Records = int(deleted.DeletedCount)
	return res, nil
}

// aMilli lets the server's clock, whose unit that is, go on: a record that is removed in the millisecond of its insert could be
// followed by one with the same token.
func aMilli(ctx context.Context) error {
	t := time.NewTimer(2 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
