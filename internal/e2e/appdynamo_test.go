package e2e

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/dynamostore"
)

func dialDynamoDB(url string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

// ledgerKey returns the key of an item of the service: the account, or the charges of an operation. They are in the
// records' table.
func ledgerKey(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberB{Value: []byte("ledger")}, "sk": &types.AttributeValueMemberB{Value: []byte(name)}}
}

const accountItem, chargePrefix = "account", "op-"

func openDynamoDB(ctx context.Context, url, table string) (*app[*dynamostore.Tx], error) {
	client, opts := dialDynamoDB(url), &dynamostore.Options{Table: table, ClockSkew: -1} // of one machine
	if err := dynamostore.Migrate(ctx, client, opts); err != nil {
		return nil, err
	}
	store, err := dynamostore.NewTx(ctx, client, opts)
	if err != nil {
		return nil, err
	}
	add := func(tx *dynamostore.Tx, name, n string) error {
		return tx.Update(types.Update{
			TableName: &table, Key: ledgerKey(name), UpdateExpression: aws.String("ADD n :n"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: n}},
		})
	}
	return &app[*dynamostore.Tx]{
		store: store,
		charges: func(_ context.Context, tx *dynamostore.Tx, op int) error {
			if err := add(tx, accountItem, "-1"); err != nil {
				return err
			}
			return add(tx, chargePrefix+strconv.Itoa(op), "1")
		},
		begin:   func(context.Context) (*dynamostore.Tx, error) { return store.NewTransaction(), nil },
		commit:  func(ctx context.Context, tx *dynamostore.Tx) error { return tx.Commit(context.WithoutCancel(ctx)) },
		discard: func(_ context.Context, tx *dynamostore.Tx) { tx.Rollback() },
		close:   func() {},
	}, nil
}

// TestKillDynamoDB is the same on DynamoDB.
func TestKillDynamoDB(t *testing.T) {
	t.Parallel()
	ctx, url, table := context.Background(), testserver.URL(t, "dynamodb"), "e2e"+rand.Text()
	client := dialDynamoDB(url)
	a, err := openDynamoDB(ctx, url, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
			t.Error(err)
		}
	})
	kills(t, workerSpec{DynamoDB: url, Table: table}, func() audited {
		res := audited{ledger: map[int]int{}}
		pages := dynamodb.NewQueryPaginator(client, &dynamodb.QueryInput{
			TableName: &table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("pk = :pk"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":pk": ledgerKey("")["pk"]},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				n, err := strconv.Atoi(item["n"].(*types.AttributeValueMemberN).Value)
				if err != nil {
					t.Fatal(err)
				}
				if op, isCharge := strings.CutPrefix(string(item["sk"].(*types.AttributeValueMemberB).Value), chargePrefix); isCharge {
					at, err := strconv.Atoi(op)
					if err != nil {
						t.Fatal(err)
					}
					res.ledger[at] = n
				} else {
					res.balance = n
				}
			}
		}
		return res
	}, func(settle func(everonce.Store)) { settle(a.store) })
}
