package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
)

// sqsServer is SQS, or what speaks its protocol.
type sqsServer struct {
	client *sqs.Client
	urls   map[string]*string
}

func newSQS(_ context.Context, url string) (broker, error) {
	return &sqsServer{urls: map[string]*string{}, client: sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "elasticmq", HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})}, nil
}

func (q *sqsServer) create(ctx context.Context, name string, attributes map[string]string) error {
	out, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err == nil {
		q.urls[name] = out.QueueUrl
	}
	return err
}

func (q *sqsServer) serve(ctx context.Context, queue string, h *consume.Consumer, workers consume.Workers) (func(context.Context) error, error) {
	dead := queue + "-dead"
	if err := q.create(ctx, dead, nil); err != nil {
		return nil, err
	}
	out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: q.urls[dead], AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		return nil, err
	}
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1000}`, out.Attributes["QueueArn"])
	if err := q.create(ctx, queue, map[string]string{"RedrivePolicy": policy}); err != nil {
		return nil, err
	}
	c, err := sqsonce.Dial(ctx, q.client, sqsonce.Queue{Name: queue}, h, &sqsonce.Options{Workers: workers})
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func (q *sqsServer) bare(ctx context.Context, queue string, handle func(context.Context, []byte) error) error {
	if err := q.create(ctx, queue, nil); err != nil {
		return err
	}
	url, received := q.urls[queue], make(chan types.Message, consumerWorkers)
	go func() {
		defer close(received)
		for ctx.Err() == nil {
			out, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20})
			if err != nil {
				return // the measurement is over
			}
			for _, m := range out.Messages {
				received <- m
			}
		}
	}()
	for range consumerWorkers {
		go func() {
			for m := range received {
				if handle(ctx, []byte(*m.Body)) == nil {
					q.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle}) //nolint:errcheck // as above
				}
			}
		}()
	}
	return nil
}

// send sends ten at a time, and a few such requests at a time: it is not what is measured.
func (q *sqsServer) send(ctx context.Context, queue string, messages []sent) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for ten := range slices.Chunk(messages, 10) {
		g.Go(func() error {
			in := &sqs.SendMessageBatchInput{QueueUrl: q.urls[queue]}
			for i, m := range ten {
				in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(m.body)), MessageAttributes: map[string]types.MessageAttributeValue{
					sqsonce.AttributeID: {DataType: aws.String("String"), StringValue: &m.id},
				}})
			}
			out, err := q.client.SendMessageBatch(ctx, in)
			if err == nil && len(out.Failed) > 0 {
				err = fmt.Errorf("%d messages were not taken", len(out.Failed))
			}
			return err
		})
	}
	return g.Wait()
}

func (q *sqsServer) remove([]string) error {
	var errs []error
	for _, url := range q.urls {
		_, err := q.client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: url})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
