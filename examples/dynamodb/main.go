// Command dynamodb charges an account in DynamoDB, once, however often it is run: the charge and the record of it
// commit together. It takes the configuration of AWS, and makes the tables "everonce" and "accounts".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/dynamostore"
)

// bank keeps its accounts in a separate table, whose key is the account's ID, a string.
type bank struct {
	receiver *everonce.TxReceiver[*dynamostore.Tx]
	accounts string
}

// charge adds to what the account has spent, up to its limit of 1000.
func (b *bank) charge(ctx context.Context, order, account string, amount int) (everonce.Result[int], error) {
	key := everonce.Key{Scope: everonce.ScopeOf("bank", "charge"), ID: order}
	return everonce.Transact(ctx, b.receiver, key, func(_ context.Context, tx *dynamostore.Tx) (int, error) {
		return amount, tx.Update(types.Update{
			TableName:                 &b.accounts,
			Key:                       map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: account}},
			UpdateExpression:          aws.String("ADD spent :amount"),
			ConditionExpression:       aws.String("attribute_not_exists(spent) OR spent <= :most"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":amount": number(amount), ":most": number(1000 - amount)},
		})
	}, everonce.FingerprintOf(account, amount))
}

func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

func main() {
	if err := run(context.Background(), os.Stdout, "everonce", "accounts"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, records, accounts string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client, opts := dynamodb.NewFromConfig(cfg), &dynamostore.Options{Table: records}
	if err := dynamostore.Migrate(ctx, client, opts); err != nil {
		return err
	}
	store, err := dynamostore.NewTx(ctx, client, opts)
	if err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	if err := createAccounts(ctx, client, accounts); err != nil {
		return err
	}
	b := &bank{receiver, accounts}
	for _, c := range []struct {
		order  string
		amount int
	}{{"order-7", 600}, {"order-7", 600}, {"order-8", 600}, {"order-7", 600}} {
		switch res, err := b.charge(ctx, c.order, "alice", c.amount); {
		case errors.As(err, new(*dynamostore.ConditionError)):
			fmt.Fprintf(out, "%s: %v, the limit is reached\n", c.order, res.Outcome)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%s: %v, %d\n", c.order, res.Outcome, res.Value)
		}
	}
	return nil
}

// createAccounts makes the application's own table, which everonce knows nothing of.
func createAccounts(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return err
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute)
}
