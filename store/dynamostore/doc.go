// Package dynamostore keeps records in DynamoDB, through the AWS SDK.
package dynamostore
