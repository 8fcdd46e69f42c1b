package dynamostore_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/dynamostore"
)

func newTxStore(t testing.TB, table string) *dynamostore.TxStore {
	t.Helper()
	s, err := dynamostore.NewTx(t.Context(), client(t), &dynamostore.Options{Table: table, ClockSkew: -1})
	noErr(t, err)
	return s
}

// effects are the application's items: counters, in the table of the records, under separate keys.
type effects struct {
	client *dynamodb.Client
	table  string
}

func (e effects) key(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberB{Value: []byte("effects")}, "sk": &types.AttributeValueMemberB{Value: []byte("effect " + name)}}
}

func (e effects) apply(_ context.Context, tx *dynamostore.Tx, name string) error {
	return tx.Update(types.Update{
		TableName: &e.table, Key: e.key(name), UpdateExpression: aws.String("ADD hits :one"), ExpressionAttributeValues: map[string]types.AttributeValue{":one": num(1)},
	})
}

func (e effects) count(ctx context.Context, name string) (int, error) {
	got, err := e.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &e.table, Key: e.key(name), ConsistentRead: aws.Bool(true)})
	if err != nil || got.Item == nil {
		return 0, err
	}
	return atoi(got.Item["hits"]), nil
}

// TestConformanceTx holds the transactions to the suite.
func TestConformanceTx(t *testing.T) {
	drivertest.RunTxWithBugs(t, func(t testing.TB) drivertest.TxHarness[*dynamostore.Tx] {
		table := newTable(t)
		store := newTxStore(t, table)
		e := effects{client(t), table}
		return drivertest.TxHarness[*dynamostore.Tx]{
			Harness: drivertest.Harness{Store: store, Peer: newTxStore(t, table)}, Apply: e.apply, Count: e.count,
			Begin: func(context.Context) (drivertest.CallerTx[*dynamostore.Tx], error) {
				tx := store.NewTransaction()
				return drivertest.CallerTx[*dynamostore.Tx]{
					Tx: tx, Commit: tx.Commit, Rollback: func(context.Context) error { tx.Rollback(); return nil },
				}, nil
			},
			Spoil: func(_ context.Context, tx *dynamostore.Tx) error { // nothing is sent: too many items are what can be refused
				return tx.Add(make([]types.TransactWriteItem, dynamostore.MaxItems+1)...)
			},
		}
	}, func() drivertest.Capabilities { c := capabilities(); c.DecidesAtCommit = true; return c }())
}
