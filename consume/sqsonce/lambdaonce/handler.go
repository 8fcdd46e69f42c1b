// Package lambdaonce runs a consumer in AWS Lambda, behind an event source mapping of an SQS queue:
//
//	c, err := sqsonce.Dial(ctx, sqs.NewFromConfig(cfg), sqsonce.Queue{Name: "orders"}, handler, nil)
//	…
//	lambda.Start(lambdaonce.Handler(c))
//
// The mapping must have ReportBatchItemFailures among its function response types. Without that, Lambda deletes all
// messages after an answer, also those that failed.
package lambdaonce

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume/sqsonce"
)

// Handler returns a function for Lambda. Its answer lists, as batchItemFailures, exactly the messages that must come
// again: messages that failed, that another delivery is handling, that there was no time for, and, in a FIFO queue,
// later messages of the group of such a message. After an error all come again. Lambda deletes the others. See
// [sqsonce.Consumer.HandleBatch].
//
// The queue's visibility timeout is the time after which messages that were not handled come again. AWS recommends six
// times the function's timeout.
func Handler(c *sqsonce.Consumer) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		messages := make([]types.Message, len(event.Records))
		for i := range event.Records {
			m, err := messageOf(&event.Records[i])
			if err != nil {
				return events.SQSEventResponse{}, err
			}
			messages[i] = m
		}
		again, err := c.HandleBatch(ctx, messages)
		if err != nil {
			return events.SQSEventResponse{}, err
		}
		response := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
		for _, id := range again {
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
		return response, nil
	}
}

// messageOf returns a record as SQS itself would deliver it.
func messageOf(r *events.SQSMessage) (types.Message, error) {
	if r.MessageId == "" || r.EventSource != "aws:sqs" {
		return types.Message{}, fmt.Errorf("lambdaonce: the event does not come from an SQS queue, but from %q (check the function's event source)", r.EventSource)
	}
	m := types.Message{
		MessageId: &r.MessageId, ReceiptHandle: &r.ReceiptHandle, Body: &r.Body, Attributes: r.Attributes,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(r.MessageAttributes)),
	}
	for name, a := range r.MessageAttributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String(a.DataType), StringValue: a.StringValue, BinaryValue: a.BinaryValue}
	}
	return m, nil
}
