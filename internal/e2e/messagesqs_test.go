package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
)

// sqsServer is SQS.
type sqsServer struct {
	spec   *messageSpec
	client *sqs.Client
}

func newSQS(spec *messageSpec) broker { return &sqsServer{spec, sqsClient(spec.Broker)} }

func sqsClient(url string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "elasticmq", RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil //nolint:gosec // no real account
		}),
	})
}

// sqsQueue is the name of what a way consumes.
func sqsQueue(s *messageSpec, way string) string { return s.Queues + "-" + way }

const sqsTimeout = 10 * time.Second

func (q *sqsServer) consumer(ctx context.Context, way string, h *consume.Consumer, workers consume.Workers) (runner, error) {
	return sqsonce.Dial(ctx, sqsClient(q.spec.byLine()), sqsonce.Queue{Name: sqsQueue(q.spec, way)}, h, &sqsonce.Options{
		Workers: workers, Visibility: 3 * time.Second, Wait: time.Second, Backoff: consume.Backoff{Max: time.Second},
	})
}

func (q *sqsServer) letters(ctx context.Context, way string) (consume.DeadLetters, error) {
	return sqsonce.DialDeadLetters(ctx, q.client, sqsonce.Queue{Name: sqsQueue(q.spec, way)})
}

func (q *sqsServer) declare(ctx context.Context, ways []string) error {
	for _, way := range ways {
		name := sqsQueue(q.spec, way)
		dead, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name + "-dead")})
		if err != nil {
			return err
		}
		out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: dead.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
		if err != nil {
			return err
		}
		policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1000}`, out.Attributes["QueueArn"])
		if _, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"RedrivePolicy": policy}}); err != nil {
			return err
		}
	}
	return nil
}

// each calls a function for the URL of each queue of ways, and what belongs to its name in a count.
func (q *sqsServer) each(ctx context.Context, ways []string, call func(url *string, count string) error) error {
	for _, way := range ways {
		for end, count := range map[string]string{"": way, "-dead": way + ".dead"} {
			out, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(sqsQueue(q.spec, way) + end)})
			if err == nil {
				err = call(out.QueueUrl, count)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *sqsServer) remove(ctx context.Context, ways []string) error {
	return q.each(ctx, ways, func(url *string, _ string) error {
		_, err := q.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url})
		return err
	})
}

// waiting also counts messages in progress: they are not done.
func (q *sqsServer) waiting(ways []string) (counts map[string]int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sqsTimeout)
	defer cancel()
	counts = map[string]int{}
	return counts, q.each(ctx, ways, func(url *string, name string) error {
		out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{"All"}})
		if err != nil {
			return err
		}
		for attribute, text := range out.Attributes {
			if n, _ := strconv.Atoi(text); n > 0 && strings.HasPrefix(attribute, "ApproximateNumberOfMessages") { //nolint:errcheck // a number
				counts[name] += n
			}
		}
		return nil
	})
}

func (q *sqsServer) publish(way string, ops []int) (left []int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sqsTimeout)
	defer cancel()
	url, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(sqsQueue(q.spec, way))})
	for len(ops) > 0 && err == nil {
		part := ops[:min(len(ops), 10)]
		in := &sqs.SendMessageBatchInput{QueueUrl: url.QueueUrl}
		for i, op := range part {
			id, body := message(op)
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body)), MessageAttributes: map[string]types.MessageAttributeValue{
				sqsonce.AttributeID: {DataType: aws.String("String"), StringValue: &id},
			}})
		}
		var out *sqs.SendMessageBatchOutput
		if out, err = q.client.SendMessageBatch(ctx, in); err == nil && len(out.Failed) > 0 {
			err = fmt.Errorf("%d messages were not taken", len(out.Failed))
		}
		if err == nil {
			ops = ops[len(part):]
		}
	}
	return ops, err
}

func (q *sqsServer) cut() {}
