package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, wrapError(ctx, "keep identity", s.keepIdentity(alone(ctx), req.Check))
}

func (s *Store) keepIdentity(ctx context.Context, check [32]byte) error {
	for try := 1; ; try++ {
		res, err := s.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: once}, {Key: "identity", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: binary(check[:])}}}})
		if err != nil || res.MatchedCount == 1 {
			return err
		}
		kept, err := s.identity(ctx)
		switch {
		case err != nil:
			return err
		case kept.Bound && kept.Check != check:
			return driver.ErrIdentity
		case kept.Bound:
			return nil
		}
		if err := beforeRetry(ctx, try); err != nil { // it was bound a moment ago, which is not on a majority yet
			return err
		}
	}
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (driver.ReadIdentityResult, error) {
	res, err := s.identity(alone(ctx))
	return res, wrapError(ctx, "read identity", err)
}

func (s *Store) identity(ctx context.Context) (res driver.ReadIdentityResult, err error) {
	var found struct {
		Identity *bson.Binary `bson:"identity"`
	}
	switch err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: once}}).Decode(&found); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return res, errGone
	case err != nil:
		return res, err
	case found.Identity == nil:
		return res, nil
	case len(found.Identity.Data) != len(res.Check):
		return res, driver.ErrCorruptRecord
	}
	return driver.ReadIdentityResult{Bound: true, Check: [32]byte(found.Identity.Data)}, nil
}
