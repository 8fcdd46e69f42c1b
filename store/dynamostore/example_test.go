package dynamostore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/dynamostore"
)

// exampleClient returns a client of the tests' server, with empty tables for an example. An application takes
// dynamodb.NewFromConfig.
func exampleClient(ctx context.Context, tables ...string) *dynamodb.Client {
	c := connect(os.Getenv("EVERONCE_TEST_DYNAMODB_URL"))
	for _, table := range tables {
		_, _ = c.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}) //nolint:errcheck // it may not exist
	}
	return c
}

func ExampleNew() {
	ctx := context.Background()
	client := exampleClient(ctx, "everonce")
	if err := dynamostore.Migrate(ctx, client, nil); err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.New(ctx, client, nil)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		res, err := everonce.Do(ctx, receiver, everonce.Key{Scope: "charges", ID: "order-7"},
			func(context.Context, *everonce.Attempt) (string, error) { return "receipt 1", nil })
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// executed receipt 1 <nil>
	// replayed receipt 1 <nil>
}

// An order and its record are written together, and the account pays if it can.
func ExampleNewTx() {
	ctx := context.Background()
	opts := &dynamostore.Options{Table: "everonce-example-tx"}
	client := exampleClient(ctx, opts.Table)
	if err := dynamostore.Migrate(ctx, client, opts); err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.NewTx(ctx, client, opts)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	accounts := opts.Table // an application has a separate table
	account := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberB{Value: []byte("account")}, "sk": &types.AttributeValueMemberB{Value: []byte("7")}}
	for range 2 {
		res, err := everonce.Transact(ctx, receiver, everonce.Key{Scope: "charges", ID: "order-7"},
			func(_ context.Context, tx *dynamostore.Tx) (string, error) {
				return "charged", tx.Update(types.Update{
					TableName: &accounts, Key: account, UpdateExpression: aws.String("ADD spent :amount"),
					ConditionExpression:       aws.String("attribute_not_exists(spent) OR spent < :limit"),
					ExpressionAttributeValues: map[string]types.AttributeValue{":amount": num(100), ":limit": num(1000)},
				})
			})
		fmt.Println(res.Outcome, res.Value, err)
	}
	got, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &accounts, Key: account, ConsistentRead: aws.Bool(true)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(atoi(got.Item["spent"]))
	// Output:
	// executed charged <nil>
	// replayed charged <nil>
	// 100
}
