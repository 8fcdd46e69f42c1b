package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, wrapError("keep identity", s.keepIdentity(ctx, req.Check))
}

func (s *Store) keepIdentity(ctx context.Context, check [32]byte) error {
	_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: s.table, Key: once, UpdateExpression: aws.String("SET #i = :i"), ConditionExpression: aws.String("attribute_not_exists(#i)"),
		ExpressionAttributeNames: map[string]string{"#i": attrIdentity}, ExpressionAttributeValues: attributes{":i": bytes(check[:])},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	found, written, err := conditionResult(err, true)
	if err != nil || written {
		return err
	}
	kept, err := found.identity()
	if err == nil && kept.Check != check {
		err = driver.ErrIdentity
	}
	return err
}

func (a attributes) identity() (res driver.ReadIdentityResult, err error) {
	r := reader{from: a}
	switch check := r.bytes(attrIdentity); {
	case r.bad != "" || check != nil && len(check) != len(res.Check):
		return res, driver.ErrCorruptRecord
	case check == nil:
		return res, nil
	default:
		return driver.ReadIdentityResult{Bound: true, Check: [32]byte(check)}, nil
	}
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	found, err := s.item(ctx, once)
	if err == nil {
		res, err = found.identity()
	}
	return res, wrapError("read identity", err)
}
