package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
)

// defaultBatch is the limit of a deletion, or a purge, that names none.
const defaultBatch = 1000

// DeleteScope implements [everonce.ScopeDeleter]. A Limit of 0 is 1000. A request without a scope is refused, because
// it would be everybody's. A record that cannot be read is deleted too, unless it is a claim whose lease cannot be
// read, or of a newer version.
func (s *Store) DeleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (res everonce.DeleteScopeResult, err error) {
	if res, err = s.deleteScope(alone(ctx), req); err != nil {
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
	if err := aMilli(ctx); err != nil {
		return res, err
	}
	over := bson.D{{Key: "$not", Value: bson.A{live}}}
	known := bson.E{Key: "f", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: everonce.FormatVersion}}}}} // or none that can be read
	var ids, corrupt bson.A
	hide := bson.D{{Key: "rd", Value: 0}, {Key: "rs", Value: 0}, {Key: "s", Value: 0}}
	err = s.scan(ctx, req.Scope, everonce.RecordID{}, bson.D{{Key: "$expr", Value: over}, known}, hide, func(found *listed) bool {
		_, err := found.record()
		switch {
		case len(ids)+len(corrupt) == req.Limit:
			res.More = true
			return false
		case err != nil:
			corrupt = append(corrupt, binary(found.head.ID[:]))
		default:
			ids = append(ids, binary(found.head.ID[:]))
		}
		return true
	})
	if err != nil {
		return res, err
	}
	remove := func(filter bson.D) error {
		deleted, err := s.coll.DeleteMany(ctx, append(filter, known))
		if err == nil {
			res.Records += int(deleted.DeletedCount)
		}
		return err
	}
	if len(ids) > 0 {
		err = remove(still(ids, all(inserted, over)))
	}
	if len(corrupt) > 0 && err == nil { // which may not tell when it was inserted
		err = remove(still(corrupt, over))
	}
	return res, err
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
