package consumers

import (
	"context"
	"crypto/rand"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/dynamostore"
)

// openDynamoDB makes a store in a table of a test's own.
func openDynamoDB(tb testing.TB) (*dynamostore.TxStore, *dynamodb.Client, string) {
	tb.Helper()
	url, table := testserver.URL(tb, "dynamodb"), "consumers"+rand.Text()
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	opts := &dynamostore.Options{Table: table, ClockSkew: -1} // of one machine
	noErr(tb, dynamostore.Migrate(tb.Context(), client, opts))
	tb.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
		noErr(tb, err)
	})
	store, err := dynamostore.NewTx(tb.Context(), client, opts)
	noErr(tb, err)
	return store, client, table
}

// onDynamoDB keeps the shipments as items in the records' table, under separate keys.
func onDynamoDB(tb testing.TB) ledger[*dynamostore.Tx] {
	tb.Helper()
	store, client, table := openDynamoDB(tb)
	key := func(name string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberB{Value: []byte("shipments")}, "sk": &types.AttributeValueMemberB{Value: []byte("of " + name)},
		}
	}
	return ledger[*dynamostore.Tx]{
		store,
		func(_ context.Context, tx *dynamostore.Tx, name string) error {
			return tx.Update(types.Update{
				TableName: &table, Key: key(name), UpdateExpression: aws.String("ADD n :one"),
				ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
			})
		},
		func(ctx context.Context, name string) (int, error) {
			got, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key(name), ConsistentRead: aws.Bool(true)})
			if err != nil || got.Item == nil {
				return 0, err
			}
			return strconv.Atoi(got.Item["n"].(*types.AttributeValueMemberN).Value)
		},
	}
}
