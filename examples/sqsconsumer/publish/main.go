// Command publish sends a message to an SQS queue, which it creates, with a queue of dead letters: publish QUEUE BODY.
// It takes the configuration of AWS.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: publish QUEUE BODY")
	}
	if err := publish(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// publish returns nil when the queue has the message. After an error it may be there or not: publish it again.
func publish(ctx context.Context, queue, body string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sqs.NewFromConfig(cfg)
	dead, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(queue + "-dead")})
	if err != nil {
		return err
	}
	got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: dead.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		return err
	}
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":100}`, got.Attributes["QueueArn"])
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &queue, Attributes: map[string]string{"RedrivePolicy": policy}})
	if err != nil {
		return err
	}
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: &body})
	return err
}
