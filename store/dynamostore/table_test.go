package dynamostore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/dynamostore"
)

// Several processes may create the table at once. Without it, or with another one in its place, there is no store.
func TestTheTable(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	opts := &dynamostore.Options{Table: "t" + rand.Text()}
	if _, err := dynamostore.New(ctx, c, opts); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "dynamostore.Migrate") {
		t.Errorf("without a table: %v, want ErrSchema, and what creates it", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := dynamostore.Migrate(ctx, c, opts); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Cleanup(func() { _, _ = c.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &opts.Table}) }) //nolint:errcheck // as below
	s, err := dynamostore.New(ctx, c, opts)
	noErr(t, err)
	h, err := s.Health(ctx, driver.HealthRequest{})
	if err != nil || len(h.Notes) != 1 {
		t.Errorf("the notes on a table with the right settings: %q, %v", h.Notes, err)
	}
	_, err = c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &opts.Table, Key: dynamostore.Once(), UpdateExpression: aws.String("SET layout = :l"), ExpressionAttributeValues: map[string]types.AttributeValue{":l": num(2)},
	})
	noErr(t, err)
	if _, err := dynamostore.New(ctx, c, opts); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a newer version's table: %v, want ErrSchema", err)
	}

	other := &dynamostore.Options{Table: "t" + rand.Text()}
	_, err = c.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &other.Table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	noErr(t, err)
	if _, err := dynamostore.New(ctx, c, other); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("a table with other keys: %v, want ErrSchema", err)
	}
	_, err = c.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &other.Table})
	noErr(t, err)
}

// Every lease is held for the margin of clocks beyond what the owner was granted, and a process whose clock is further
// off than that does not begin.
func TestTheMarginOfClocks(t *testing.T) {
	t.Parallel()
	ctx, l, table := t.Context(), new(line), newTable(t)
	tx, err := dynamostore.NewTx(ctx, l.over(t, 1), &dynamostore.Options{Table: table, ClockSkew: 7 * time.Second})
	noErr(t, err)
	s, rec := tx.Store, claimed(t, tx, "7")
	inTx := call{"a step of a transaction", func(ctx context.Context, _ *dynamostore.Store, rec driver.Record) error {
		h, _, err := tx.Begin(ctx, driver.BeginRequest{})
		noErr(t, err)
		step := driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: rec.Attempt, Result: driver.SavedResult{Kind: driver.ResultElided}}
		_, err = h.Commit(ctx, driver.CommitRequest{SaveStep: &driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life, Step: step}})
		return err
	}}
	for _, c := range []call{{"Claim", nil}, writes[0], writes[1], inTx} {
		if c.do != nil {
			noErr(t, c.do(ctx, s, rec))
		}
		got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		if held := got.Record.LeaseUntil.Sub(got.Record.UpdatedAt); held != lease+7*time.Second {
			t.Errorf("%s: the lease is held for %v, want %v and the margin", c.name, held, lease)
		}
	}
	l.spoil(hour)
	if _, err := dynamostore.New(ctx, l.over(t, 1), &dynamostore.Options{Table: table}); !errors.Is(err, dynamostore.ErrClock) {
		t.Errorf("New with a clock that is off: %v, want ErrClock", err)
	}
	l.spoil(nil, hour)
	if h, err := s.Health(ctx, driver.HealthRequest{}); err != nil || len(h.Notes) != 2 || !strings.Contains(h.Notes[1], "clock differs") {
		t.Errorf("Health with a clock that is off: %q, %v", h.Notes, err)
	}
}

// An answer that is read late, as on a busy machine, says nothing of the clocks.
func TestALateAnswerIsNoSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(line)
		l.spoil(func(func() (*http.Response, error)) (*http.Response, error) {
			res, err := refusing(http.StatusOK, "{}")(nil)
			res.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
			time.Sleep(time.Minute)
			return res, err
		}, refusing(http.StatusOK, "{}"), refusing(http.StatusBadRequest,
			`{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Item":{"layout":{"N":"1"}}}`))
		c := connect("http://127.0.0.1:1", func(o *dynamodb.Options) { o.HTTPClient = l })
		if _, err := dynamostore.New(t.Context(), c, nil); err != nil {
			t.Error(err)
		}
	})
}

// A record that has ended has a TTL well after its end, which DynamoDB may take for its word. One that waits for its
// settlement has none.
func TestTheTTL(t *testing.T) {
	t.Parallel()
	ctx, table := t.Context(), newTable(t)
	s := newStore(t, table)
	for what, c := range map[string]struct {
		end  call
		want bool
	}{
		"claimed":   {writes[0], false},
		"completed": {writes[2], true},
		"released":  {release, true},
	} {
		rec := claimed(t, s, what)
		noErr(t, c.end.do(ctx, s, rec))
		got, err := client(t).GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: dynamostore.Key(rec.ID), ConsistentRead: aws.Bool(true)})
		noErr(t, err)
		v, has := got.Item["ttl"]
		if has != c.want {
			t.Errorf("%s: it has a TTL: %v", what, has)
		}
		if has {
			after := time.Unix(int64(atoi(v)), 0).Sub(rec.ClaimedAt)
			if after < life.Total()+time.Hour-time.Second || after > life.Total()+time.Hour+time.Minute {
				t.Errorf("%s: the TTL ends %v after the claim, want an hour after %v", what, after, life.Total())
			}
		}
	}
}

// The results of steps leave room in the item, so that what comes after them can be written, elided at the worst: an
// item that is full could neither be renewed nor completed, by anybody (rule 10).
func TestStepsLeaveRoomForWhatFollows(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	s := newStore(t, table)
	rec := claimed(t, s, strings.Repeat("n", driver.MaxIDLen))
	save := func(name string, size int) error {
		step := driver.StepRecord{Name: name + strings.Repeat("x", driver.MaxStepNameLen-len(name)), State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided, Codec: "raw"}}
		if size > 0 {
			step.Result.Kind, step.Result.Data = driver.ResultValue, make([]byte, size)
		}
		_, err := s.SaveStep(t.Context(), driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life, Step: step})
		return err
	}
	elided := driver.StepRecord{State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided, Codec: "raw"}, BeganAt: rec.ClaimedAt, EndedAt: rec.ClaimedAt}
	many := new(types.AttributeValueMemberL)
	for i := 3; i < driver.MaxSteps; i++ { // by hand: as many calls would take long
		elided.Name = fmt.Sprintf("%0*d", driver.MaxStepNameLen, i)
		many.Value = append(many.Value, dynamostore.StepOf(elided))
	}
	alter(t, table, rec.ID, "s", many)
	noErr(t, save("first", dynamostore.MaxResult-1000))
	noErr(t, save("second", 1000))
	if err := save("third", 1); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a step beyond the limit: %v, want ErrTooLarge", err)
	}
	done := driver.CompleteRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life, Result: driver.SavedResult{
		Kind: driver.ResultValue, Codec: "raw", Data: make([]byte, 64<<10), Summary: make([]byte, driver.MaxSummaryLen),
	}}
	if _, err := s.Complete(t.Context(), done); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a result for which the item has no room: %v, want ErrTooLarge", err)
	}
	done.Result.Kind, done.Result.Data = driver.ResultElided, nil
	_, err := s.Complete(t.Context(), done)
	noErr(t, err)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []*dynamostore.Options{nil, {}, {Table: "a.b-C_9"}, {ClockSkew: -1}, {ClockSkew: 30 * time.Minute}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []dynamostore.Options{{Table: "ab"}, {Table: strings.Repeat("t", 256)}, {Table: "a b c"}, {ClockSkew: time.Hour}} {
		if err := o.Validate(); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%+v: %v, want ErrInvalidArgument", o, err)
		}
	}
}
