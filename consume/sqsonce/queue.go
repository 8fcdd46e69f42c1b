package sqsonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/everonce/everonce"
)

// Client has the methods of [*sqs.Client] that this package uses.
type Client interface {
	GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, optFns ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, optFns ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, optFns ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, optFns ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, optFns ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	SendMessage(ctx context.Context, in *sqs.SendMessageInput, optFns ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, optFns ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// Queue describes the queue to consume. Nothing is created.
type Queue struct {
	// Name is the queue's name or URL. Required.
	Name string
	// DeadLetters is the name or URL of the queue for dead letters. Default: the queue of the RedrivePolicy. It must
	// be a FIFO queue if the queue has a RedrivePolicy and is one.
	DeadLetters string
	// Envelope is the envelope of the messages. Default: nothing.
	Envelope Envelope
}

var (
	// ErrUnreachable says that SQS did not answer, or refused the credentials.
	ErrUnreachable = errors.New("sqsonce: SQS cannot be reached")
	// ErrTopology says that a queue does not exist, or that a queue has no dead-letter queue.
	ErrTopology = errors.New("sqsonce: a queue is missing")
)

// place is an existing queue.
type place struct {
	url, name, arn string
	maxSize        int    // of a message, in bytes
	deadLetters    string // the ARN in its RedrivePolicy, if any
	maxReceives    int
	retention      time.Duration // of a message, since it was sent
	visible        int           // messages that wait, approximately
	hidden         int           // received and unanswered messages, approximately
}

func (p *place) fifo() bool { return strings.HasSuffix(p.name, fifoSuffix) }

const fifoSuffix = ".fifo"

// find looks up a queue by its name or URL.
func find(ctx context.Context, client Client, queue string) (*place, error) {
	url, err := urlOf(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		return nil, missing(ctx, queue, err)
	}
	p := &place{url: url, name: url[strings.LastIndex(url, "/")+1:], arn: out.Attributes["QueueArn"], maxSize: number(out.Attributes["MaximumMessageSize"])}
	p.retention = time.Duration(number(out.Attributes["MessageRetentionPeriod"])) * time.Second
	p.visible = number(out.Attributes["ApproximateNumberOfMessages"])
	p.hidden = number(out.Attributes["ApproximateNumberOfMessagesNotVisible"])
	if p.maxSize <= 0 {
		p.maxSize = 256 << 10
	}
	var policy struct {
		DeadLetterTargetArn string
		MaxReceiveCount     json.Number
	}
	if json.Unmarshal([]byte(out.Attributes["RedrivePolicy"]), &policy) == nil {
		p.deadLetters, p.maxReceives = policy.DeadLetterTargetArn, number(policy.MaxReceiveCount.String())
	}
	return p, nil
}

// urlOf returns the URL of a queue, by its name or URL.
func urlOf(ctx context.Context, client Client, queue string) (string, error) {
	if strings.Contains(queue, "://") {
		return queue, nil
	}
	out, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return "", missing(ctx, queue, err)
	}
	return *out.QueueUrl, nil
}

// findBoth looks up a queue and the queue of its dead letters.
func findBoth(ctx context.Context, client Client, queue Queue) (source, dead *place, err error) {
	switch {
	case client == nil:
		return nil, nil, fmt.Errorf("%w: sqsonce: the client is nil", everonce.ErrInvalidArgument)
	case queue.Name == "":
		return nil, nil, fmt.Errorf("%w: sqsonce: Queue.Name is required", everonce.ErrInvalidArgument)
	case queue.Envelope > EventBridge:
		return nil, nil, fmt.Errorf("%w: sqsonce: unknown Envelope %d", everonce.ErrInvalidArgument, queue.Envelope)
	}
	if source, err = find(ctx, client, queue.Name); err != nil {
		return nil, nil, err
	}
	name := queue.DeadLetters
	if name == "" {
		if source.deadLetters == "" {
			return nil, nil, fmt.Errorf("%w: the queue %q has no RedrivePolicy (set one, or Queue.DeadLetters)", ErrTopology, source.name)
		}
		if name, err = urlOfARN(ctx, client, source.deadLetters); err != nil {
			return nil, nil, err
		}
	}
	if dead, err = find(ctx, client, name); err != nil {
		return nil, nil, err
	}
	if dead.url == source.url {
		return nil, nil, fmt.Errorf("%w: sqsonce: Queue.DeadLetters is the queue itself", everonce.ErrInvalidArgument)
	}
	return source, dead, nil
}

// urlOfARN returns the URL of the queue arn:aws:sqs:region:account:name.
func urlOfARN(ctx context.Context, client Client, arn string) (string, error) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 {
		return "", fmt.Errorf("%w: %q is not the ARN of a queue", ErrTopology, arn)
	}
	in := &sqs.GetQueueUrlInput{QueueName: &parts[5]}
	if parts[4] != "" {
		in.QueueOwnerAWSAccountId = &parts[4]
	}
	out, err := client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", missing(ctx, parts[5], err)
	}
	return *out.QueueUrl, nil
}

// missing returns the error for a queue that cannot be used.
func missing(ctx context.Context, queue string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("sqsonce: looking for the queue: %w", context.Cause(ctx))
	case noQueue(err):
		return fmt.Errorf("%w: there is no queue %q (create it, or check region and account): %w", ErrTopology, queue, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// noQueue reports whether an error says that a queue does not exist.
func noQueue(err error) bool {
	switch code(err) {
	case "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue":
		return true
	}
	return false
}

// code returns the error code of the service's answer, or "".
func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		c := e.ErrorCode()
		return c[strings.LastIndex(c, "#")+1:] // com.amazonaws.sqs#QueueDoesNotExist
	}
	return ""
}

// number parses a count, and returns 0 for other text.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
