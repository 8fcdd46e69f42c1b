package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/everonce/everonce/driver"
)

// ConditionError: a condition on the application's own items was false. Nothing was written.
type ConditionError struct {
	// Index is the item's place in the order in which the items were added, from 0.
	Index int
	// Item is the existing item, if its ReturnValuesOnConditionCheckFailure asks for it.
	Item map[string]types.AttributeValue
}

// Error implements error.
func (e *ConditionError) Error() string {
	return fmt.Sprintf("dynamostore: the condition of the transaction's item %d is false", e.Index)
}

var (
	errCommitLost = errors.New("dynamostore: the answer to the commit was lost")
	errBusy       = errors.New("dynamostore: another transaction writes the same items (run it again)")
)

// Codes of the reasons for which a transaction was canceled.
const (
	codeCondition  = "ConditionalCheckFailed"
	codeConflict   = "TransactionConflict"
	codeThroughput = "ProvisionedThroughputExceeded"
	codeThrottling = "ThrottlingError"
)

// commit sends what was collected. A record that has changed since it was seen is decided on again: the attempt's own
// renewal may have changed it, or an attempt that won.
func (t *Tx) commit(ctx context.Context) error {
	t.ended = true
	name := driver.NewNonce().String()
	for try := 1; ; try++ {
		input := &dynamodb.TransactWriteItemsInput{}
		var ids []driver.RecordID
		for id, p := range t.records {
			if isHere(p.next) { // and was not completed
				continue
			}
			ids = append(ids, id)
			same := p.seen.same()
			r := reader{from: p.seen}
			input.TransactItems = append(input.TransactItems, types.TransactWriteItem{Put: &types.Put{
				TableName: t.s.table, Item: itemOf(p.next, r.number(attrRevision, 1, 1<<62)+1), ConditionExpression: same.expression(),
				ExpressionAttributeNames: same.names, ExpressionAttributeValues: same.values,
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			}})
		}
		if input.TransactItems = append(input.TransactItems, t.items...); len(input.TransactItems) == 0 {
			return nil
		} else if len(input.TransactItems) > maxWrites {
			return errTooMany
		}
		token := name + strconv.Itoa(try)
		input.ClientRequestToken = &token
		err := t.s.transact(ctx, input)
		canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if !ok {
			if err != nil && lost(err) {
				t.s.leave(ids, input)
				err = fmt.Errorf("%w: %w", errCommitLost, err)
			}
			return err
		}
		again, err := t.canceled(canceled, ids)
		if !again {
			return err
		}
		if err = beforeRetry(ctx, try); err != nil {
			return fmt.Errorf("%w: %w", errBusy, err)
		}
	}
}

// canceled reads the reasons, which are in the order of the items: the records' first. It reports whether the
// transaction is to be sent again.
func (t *Tx) canceled(err *types.TransactionCanceledException, ids []driver.RecordID) (again bool, _ error) {
	var condition *ConditionError
	busy := false
	for i, reason := range err.CancellationReasons {
		code := ""
		if reason.Code != nil {
			code = *reason.Code
		}
		switch {
		case code == codeCondition && i < len(ids):
			p := t.records[ids[i]]
			if len(p.seen) == 0 && len(reason.Item) == 0 {
				return false, errNoItem
			}
			if err := p.again(reason.Item, t.s.now()); err != nil {
				return false, err
			}
			t.records[ids[i]], again = p, true
		case code == codeCondition && condition == nil:
			condition = &ConditionError{Index: i - len(ids), Item: reason.Item}
		case code == codeConflict, code == codeThroughput, code == codeThrottling:
			busy = true
		}
	}
	switch {
	case busy:
		return false, fmt.Errorf("%w: %w", errBusy, err)
	case again:
		return true, nil
	case condition != nil:
		return false, condition
	}
	return false, err
}

// transact sends a transaction. The same request with the same token may be sent again for ten minutes: it takes effect
// once.
func (s *Store) transact(ctx context.Context, input *dynamodb.TransactWriteItemsInput) error {
	_, err := s.client.TransactWriteItems(ctx, input)
	return err
}

// lost reports whether the outcome of a commit is unknown. A refusal for the rate may belong to a second try, after one
// that was not answered.
func lost(err error) bool {
	answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
	refused := ok && answer.HTTPStatusCode() >= http.StatusBadRequest && answer.HTTPStatusCode() < http.StatusInternalServerError
	return !refused || isThrottled(err)
}

// leftFor is how long a commit whose answer was lost is kept: DynamoDB knows its token so long.
const leftFor = 9 * time.Minute

// left is a commit whose answer was lost.
type left struct {
	input *dynamodb.TransactWriteItemsInput
	until time.Time
}

func (s *Store) leave(ids []driver.RecordID, input *dynamodb.TransactWriteItemsInput) {
	l := &left{input, time.Now().Add(leftFor)}
	for _, id := range ids {
		s.lost.Store(id, l)
	}
	time.AfterFunc(leftFor, func() {
		for _, id := range ids {
			s.lost.CompareAndDelete(id, l)
		}
	})
}

// resolve sends a commit of the key again whose answer was lost: it may be on its way still, and no read would see it.
// Once it is answered, it has committed, or never will.
func (s *Store) resolve(ctx context.Context, id *driver.RecordID) error {
	found, ok := s.lost.Load(*id)
	if !ok {
		return nil
	}
	l := found.(*left)
	if time.Now().Before(l.until) {
		if err := s.transact(ctx, l.input); err != nil && lost(err) {
			return err
		}
	}
	s.lost.CompareAndDelete(*id, l)
	return nil
}
