package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
)

// CheckWrite implements [driver.WriteChecker]. It writes the time into the document with the store's settings.
func (s *Store) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	update, err := s.coll.UpdateOne(alone(ctx), bson.D{{Key: "_id", Value: once}}, bson.D{{Key: "$currentDate", Value: bson.D{{Key: "checked", Value: true}}}})
	if err == nil && update.MatchedCount == 0 {
		err = errGone
	}
	return res, wrapError(ctx, "check write", err)
}
