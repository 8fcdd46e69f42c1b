package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// decision is a pure function of package transition: it returns the record to write, if there is one.
type decision func(rec *driver.Record, now time.Time) (next *driver.Record, err error)

// change decides on an item as it was seen, or guessed, and writes the decided record if the item is unchanged.
// Otherwise the refusal contains the current item, and change decides again. So no decision is written over a write
// that it has not seen, and no read comes first.
func (s *Store) change(ctx context.Context, seen attributes, decide decision) error {
	for try := 1; ; try++ {
		rec, err := seen.record()
		if err != nil {
			return err
		}
		next, err := decide(rec, s.now())
		if err != nil || next == nil {
			return err
		}
		var written bool
		if seen, written, err = s.put(ctx, next, seen); err != nil || written {
			return err
		}
		if err = beforeRetry(ctx, try); err != nil {
			return err
		}
	}
}

var errChanges = errors.New("other writes changed the item before each try (try again)")

const (
	// changeTries bounds how often one write is tried. Each refusal is another's write, and all steps of an attempt may
	// be saved at once.
	changeTries = driver.MaxSteps

	firstPause = time.Millisecond
	lastPause  = 10 * time.Millisecond
)

// beforeRetry pauses after a refused try. The first one was most often a guess, which the refusal has corrected.
func beforeRetry(ctx context.Context, try int) error {
	switch try {
	case 1:
		return nil
	case changeTries:
		return errChanges
	}
	return retry.Pause(ctx, retry.Within(firstPause, lastPause, try-1))
}

// put writes a record over an item that is unchanged since it was seen. Otherwise it returns the current item.
func (s *Store) put(ctx context.Context, rec *driver.Record, seen attributes) (found attributes, written bool, err error) {
	r := reader{from: seen}
	same := seen.same()
	err = patiently(ctx, func() error {
		_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: s.table, Item: itemOf(rec, r.number(attrRevision, 1, 1<<62)+1), ConditionExpression: same.expression(),
			ExpressionAttributeNames: same.names, ExpressionAttributeValues: same.values, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	})
	return conditionResult(err, len(seen) == 0)
}

// The waits for a transaction that is being committed with the same record.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 160 * time.Millisecond
)

// patiently repeats a write that conflicts with a transaction in its commit, which takes milliseconds. If it takes
// longer, that is an error.
func patiently(ctx context.Context, write func() error) error {
	for wait := firstWait; ; wait *= 2 {
		err := write()
		if _, meets := errors.AsType[*types.TransactionConflictException](err); !meets || wait > lastWait {
			return err
		}
		if err := retry.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// conditionResult tells the refusal of a condition, with the existing item, from other errors. If only an existing item
// can fail the condition, a refusal without one is an error.
func conditionResult(err error, exists bool) (found attributes, written bool, _ error) {
	if failure, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if exists && len(failure.Item) == 0 {
			return nil, false, errNoItem
		}
		return failure.Item, false, nil
	}
	return nil, err == nil, err
}

// condition is a condition expression.
type condition struct {
	text   string
	names  map[string]string
	values attributes
}

func (c *condition) expression() *string { return aws.String(c.text) }

// same is satisfied while the item is as it was seen. Every write changes the revision, or, where the item was removed
// in between, the nonce.
func (a attributes) same() *condition {
	if len(a) == 0 {
		return &condition{text: "attribute_not_exists(#pk)", names: map[string]string{"#pk": attrPartition}}
	}
	c := &condition{names: map[string]string{"#rev": attrRevision, "#n": attrNonce}}
	c.text = c.is(a, "#rev") + " AND " + c.is(a, "#n")
	return c
}

// is compares an attribute, whatever its type: of an item that cannot be read too.
func (c *condition) is(a attributes, name string) string {
	value, has := a[c.names[name]]
	if !has {
		return "attribute_not_exists(" + name + ")"
	}
	if c.values == nil {
		c.values = make(attributes)
	}
	c.values[":"+name[1:]] = value
	return name + " = :" + name[1:]
}
