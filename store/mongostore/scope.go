package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// defaultBatch is the limit of a deletion, or a purge, that names none.
const defaultBatch = 1000

// DeleteScope implements [driver.ScopeDeleter]. A Limit of 0 is 1000. It also deletes a record that cannot be read,
// unless it may be a live claim or of a newer version.
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	ctx = alone(ctx)
	if res, err = s.deleteScope(ctx, req); err == nil && !res.More {
		res.Live, err = s.leftOf(ctx, req.Scope)
	}
	return res, wrapError(ctx, "delete scope", err)
}

// hidden are the fields that may be large, and that a deletion does not need.
var hidden = bson.D{{Key: "rd", Value: 0}, {Key: "rs", Value: 0}, {Key: "s", Value: 0}}

func (s *Store) deleteScope(ctx context.Context, req driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, err
	}
	if req.Limit <= 0 {
		req.Limit = defaultBatch
	}
	if err := aMilli(ctx); err != nil {
		return res, err
	}
	over := all(known, ended)
	var ids, corrupt bson.A
	err = s.scan(ctx, req.Scope, driver.RecordID{}, bson.D{{Key: "$expr", Value: over}}, hidden, func(found *listed) bool {
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
		deleted, err := s.coll.DeleteMany(ctx, filter)
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

// leftOf reports whether a scope still has live claims, and returns an error if it has records that this version cannot
// judge.
func (s *Store) leftOf(ctx context.Context, scope driver.Scope) (live bool, err error) {
	var newer, corrupt error
	err = s.scan(ctx, scope, driver.RecordID{}, nil, hidden, func(found *listed) bool {
		switch rec, err := found.record(); {
		case errors.Is(err, driver.ErrCorruptRecord):
			corrupt = err
		case err != nil || rec.Format > driver.FormatVersion:
			newer = driver.ErrNewerRecord
		default:
			live = true
		}
		return true
	})
	if err == nil {
		err = errors.Join(newer, corrupt)
	}
	return live, err
}

// aMilli waits until the server's clock, which counts milliseconds, has moved: a record that is removed in the
// millisecond of its insert could be followed by one with the same token.
func aMilli(ctx context.Context) error {
	return retry.Pause(ctx, 2*time.Millisecond)
}
