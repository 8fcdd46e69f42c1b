package dynamostore

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// Store keeps records in DynamoDB. It implements [driver.Store], [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.WriteChecker], [driver.IdentityKeeper] and [driver.IdentityReader]. It is safe for
// concurrent use.
type Store struct {
	client *dynamodb.Client
	table  *string
	skew   time.Duration
	purged atomic.Pointer[attributes] // the key at which the next purge goes on; nil is the beginning
	lost   sync.Map                   // of *left by the key's ID: commits whose answers were lost
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.ScopeDeleter   = (*Store)(nil)
	_ driver.HealthChecker  = (*Store)(nil)
	_ driver.WriteChecker   = (*Store)(nil)
	_ driver.IdentityKeeper = (*Store)(nil)
	_ driver.IdentityReader = (*Store)(nil)
)

// MaxResult is the largest result, in bytes, and the largest sum of the results of all steps of a record: the limit
// of an item, less room for the record. If the steps leave no room for a result, the server refuses it with the same
// error, and the operation completes as elided.
const MaxResult = 320 << 10

// layout is the version of the table's items.
const layout = 1

// New returns a store in a table that exists ([Migrate] creates it). The caller keeps the client. In a
// new table it writes the item that holds the store's settings. One write, which the server must refuse, shows that it
// returns the item with the refusal.
//
// Errors: [driver.ErrInvalidArgument]; [driver.ErrSchema] if there is no such table, if its keys are others, or if the
// store has a newer version; [ErrClock] if this process's clock differs from the server's by more than the margin;
// [ErrServer] if the server ignores conditions, or refuses one without the item; and the errors of a server that cannot
// be reached.
func New(ctx context.Context, client *dynamodb.Client, opts *Options) (*Store, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, fmt.Errorf("dynamostore: %w: the client is nil", driver.ErrInvalidArgument)
	}
	s := &Store{client: client, table: &set.Table, skew: set.ClockSkew}
	if err := s.open(ctx); err != nil {
		return nil, wrapError("open", err)
	}
	return s, nil
}

// once is the key of the item that exists once. The keys of records are longer.
var once = attributes{attrPartition: bytes([]byte("everonce")), attrSort: bytes([]byte("everonce"))}

const (
	attrLayout   = "layout"
	attrIdentity = "identity"
	attrChecked  = "checked"
)

// open reads the settings, which fails if the table is missing or has other keys. It writes missing settings.
func (s *Store) open(ctx context.Context) error {
	sent := time.Now()
	res, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: once, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return err
	}
	if off, told := skewOf(res.ResultMetadata, sent); told && off.Abs() > s.skew+dateUnit {
		return fmt.Errorf("%w by %v, more than Options.ClockSkew allows (%v)", ErrClock, off.Round(time.Second), s.skew)
	}
	_, there := res.Item[attrLayout]
	r := reader{from: res.Item}
	if found := r.number(attrLayout, 1, math.MaxInt32); there && found != layout {
		return fmt.Errorf("%w: the table %s has layout %d, this version has %d: upgrade this process", driver.ErrSchema, *s.table, found, layout)
	}
	written := true
	for range 2 { // in a new table the first write is made, and the second one refused
		if written, err = s.writeSettings(ctx); err != nil || !written {
			break
		}
	}
	switch {
	case there && (isDenied(err) || isThrottled(err)): // a process that may only read, or a table that takes no writes now
		return nil
	case written && err == nil:
		return errNoCondition
	}
	return err
}

// writeSettings writes missing settings. If the table has settings, the server must refuse the write, which shows that
// it obeys conditions and returns the item: without both, two attempts could claim one key.
func (s *Store) writeSettings(ctx context.Context) (written bool, err error) {
	_, err = s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: s.table, Key: once, UpdateExpression: aws.String("SET #l = if_not_exists(#l, :l)"),
		ConditionExpression:      aws.String("attribute_not_exists(#l)"),
		ExpressionAttributeNames: map[string]string{"#l": attrLayout}, ExpressionAttributeValues: attributes{":l": number(layout)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	_, written, err = conditionResult(err, true)
	return written, err
}

// now is the store's time, which is this process's. In items its unit is the microsecond.
func (s *Store) now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
