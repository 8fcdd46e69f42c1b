package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
)

// get reads an item as the latest acknowledged write left it; nil is a missing item. It first resolves a commit of the
// item whose answer was lost, because that could still take effect after the read.
func (s *Store) get(ctx context.Context, id *driver.RecordID) (attributes, error) {
	if err := s.resolve(ctx, id); err != nil {
		return nil, err
	}
	return s.item(ctx, key(id))
}

func (s *Store) item(ctx context.Context, key attributes) (attributes, error) {
	res, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, err
	}
	return res.Item, nil
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	found, err := s.get(ctx, &req.ID)
	if err != nil {
		return res, wrapError("get", err)
	}
	rec, err := found.record()
	if err != nil {
		return res, wrapError("get", err)
	}
	if res.Now = s.now(); rec != nil && !rec.GoneAt(res.Now) {
		res.Found, res.Record = true, *rec
	}
	return res, nil
}
