package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// CheckWrite implements [everonce.WriteChecker]: it writes the time into the document of the collection that is no record.
func (s *Store) CheckWrite(ctx context.Context) error {
	res, err := s.coll.UpdateOne(alone(ctx), bson.D{{Key: "_id", Value: once}}, bson.D{{Key: "$currentDate", Value: bson.D{{Key: "checked", Value: true}}}})
	if err == nil && res.MatchedCount == 0 {
		err = errGone
	}
	return failed(ctx, "check write", err)
}
