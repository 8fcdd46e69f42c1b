package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
)

// CheckWrite implements [driver.WriteChecker]. It writes the time into the item that holds the settings.
func (s *Store) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	_, err = s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: s.table, Key: once, UpdateExpression: aws.String("SET #c = :c"),
		ExpressionAttributeNames: map[string]string{"#c": attrChecked}, ExpressionAttributeValues: attributes{":c": number(micros(s.now()))},
	})
	return res, wrapError("check write", err)
}
