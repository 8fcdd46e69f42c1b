package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// Migrate creates the table, billed by request, if it does not exist, waits until it exists, and switches its TTL on.
// Where the TTL is on, it only looks. It may be repeated, and run by several processes at once. Programs whose tables
// are created by CloudFormation or Terraform need not call it. It uses only Options.Table. A server that has no TTL is
// [ErrServer].
func Migrate(ctx context.Context, client *dynamodb.Client, opts *Options) error {
	set, err := opts.settings()
	if err != nil {
		return err
	}
	if client == nil {
		return fmt.Errorf("dynamostore: %w: the client is nil", driver.ErrInvalidArgument)
	}
	return wrapError("migrate", create(ctx, client, &set.Table))
}

// tableTimeout is far more than DynamoDB takes to create a table.
const tableTimeout = 5 * time.Minute

func create(ctx context.Context, client *dynamodb.Client, table *string) error {
	on, err := hasTTL(ctx, client, table)
	if isMissing(err) {
		err = createTable(ctx, client, table)
	}
	if on || err != nil {
		return err
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 200*time.Millisecond, 2*time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: table}, tableTimeout); err != nil {
		return err
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrTTL), Enabled: aws.Bool(true)},
	})
	if err == nil {
		return nil
	}
	if on, asked := hasTTL(ctx, client, table); asked == nil && on { // another process was first
		return nil
	}
	return fmt.Errorf("the table's TTL is off: %w", err)
}

func createTable(ctx context.Context, client *dynamodb.Client, table *string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrPartition), AttributeType: types.ScalarAttributeTypeB},
			{AttributeName: aws.String(attrSort), AttributeType: types.ScalarAttributeTypeB},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrPartition), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrSort), KeyType: types.KeyTypeRange},
		},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); exists {
		return nil
	}
	return err
}

func hasTTL(ctx context.Context, client *dynamodb.Client, table *string) (bool, error) {
	res, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: table})
	if err != nil {
		return false, err
	}
	return ttlIsOn(res.TimeToLiveDescription), nil
}

func ttlIsOn(t *types.TimeToLiveDescription) bool {
	return t != nil && aws.ToString(t.AttributeName) == attrTTL &&
		(t.TimeToLiveStatus == types.TimeToLiveStatusEnabled || t.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
}
