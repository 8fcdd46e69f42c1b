package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, check [32]byte) error {
	return failed(ctx, "keep identity", s.keepIdentity(alone(ctx), check))
}

func (s *Store) keepIdentity(ctx context.Context, check [32]byte) error {
	for wait := firstWait; ; {
		res, err := s.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: once}, {Key: "identity", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: binary(check[:])}}}})
		if err != nil || res.MatchedCount == 1 {
			return err
		}
		kept, bound, err := s.identity(ctx)
		switch {
		case err != nil:
			return err
		case bound && kept != check:
			return driver.ErrIdentity
		case bound:
			return nil
		}
		if err := pause(ctx, &wait); err != nil { // it was bound a moment ago, which is not on a majority yet
			return err
		}
	}
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context) (check [32]byte, bound bool, err error) {
	check, bound, err = s.identity(alone(ctx))
	return check, bound, failed(ctx, "read identity", err)
}

func (s *Store) identity(ctx context.Context) (check [32]byte, bound bool, err error) {
	var found struct {
		Identity *bson.Binary `bson:"identity"`
	}
	switch err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: once}}).Decode(&found); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return check, false, errGone
	case err != nil:
		return check, false, err
	case found.Identity == nil:
		return check, false, nil
	case len(found.Identity.Data) != len(check):
		return check, false, driver.ErrCorruptRecord
	}
	copy(check[:], found.Identity.Data)
	return check, true, nil
}
