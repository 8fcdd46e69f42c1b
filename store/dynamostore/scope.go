package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// defaultBatch is the limit of a deletion, or a purge, that names none.
const defaultBatch = 1000

// DeleteScope implements [driver.ScopeDeleter]. A Limit of 0 is 1000. It also deletes a record that cannot be read,
// unless it may be a live claim or of a newer version.
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	if res, err = s.deleteScope(ctx, &req); err != nil {
		return res, wrapError("delete scope", err)
	}
	return res, nil
}

func (s *Store) deleteScope(ctx context.Context, req *driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, err
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultBatch
	}
	var over []attributes
	var newest driver.Token
	var newer, corrupt error
	first, last := bounds(req.Scope, driver.KeyHash{}, driver.RecordID{})
	err = s.inScope(ctx, req.Scope, first, last, func(item attributes) bool {
		now := s.now()
		switch rec, err := item.record(); {
		case err != nil && !item.ended(now):
			corrupt = err
			return true
		case rec.Format > driver.FormatVersion:
			newer = driver.ErrNewerRecord
			return true
		case err == nil && rec.StateAt(now) == driver.StateClaimed:
			res.Live = true
			return true
		default:
			newest = max(newest, rec.Token)
		}
		if len(over) == limit {
			res.More = true
			return false
		}
		over = append(over, item)
		return true
	})
	if err == nil {
		err = s.outlive(ctx, newest)
	}
	for _, item := range over {
		if err != nil {
			return res, err
		}
		var removed bool
		if removed, err = s.remove(ctx, item); removed {
			res.Records++
		} else { // it was claimed meanwhile
			res.More = true
		}
	}
	if err == nil && !res.More {
		err = errors.Join(newer, corrupt)
	}
	return res, err
}

// outlive waits until every clock of the margin is past a token: the key's next token, of a new record, must be above
// it.
func (s *Store) outlive(ctx context.Context, token driver.Token) error {
	wait := time.UnixMicro(int64(token)).Add(s.skew).Sub(s.now())
	if token == 0 || wait < 0 {
		return nil
	}
	return retry.Pause(ctx, wait+time.Millisecond)
}

// remove removes an item that still is as it was seen.
func (s *Store) remove(ctx context.Context, seen attributes) (bool, error) {
	same := seen.same()
	_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: s.table, Key: attributes{attrPartition: seen[attrPartition], attrSort: seen[attrSort]}, ConditionExpression: same.expression(),
		ExpressionAttributeNames: same.names, ExpressionAttributeValues: same.values, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	_, removed, err := conditionResult(err, false)
	return removed, err
}
