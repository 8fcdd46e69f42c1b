// Package snsonce publishes the events of an outbox to SNS topics. It is tested only with a fake of the documented
// API.
package snsonce

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
	"github.com/everonce/everonce/outbox"
)

// Client has the methods of [*sns.Client] that this package uses.
type Client interface {
	PublishBatch(ctx context.Context, in *sns.PublishBatchInput, optFns ...func(*sns.Options)) (*sns.PublishBatchOutput, error)
}

// Publisher publishes events, up to ten in a call. An event is published when SNS has confirmed it. Its message has
// the format of package sqsonce's Publisher, so that a consumer of a subscribed queue finds its ID: with raw message
// delivery in an attribute of the message, otherwise in SNS' envelope.
type Publisher struct {
	client Client
	topic  func(*outbox.Event) string
}

// NewPublisher returns a publisher. topic returns the ARN of an event's topic. NewPublisher sends nothing. The error
// wraps [everonce.ErrInvalidArgument].
func NewPublisher(client Client, topic func(*outbox.Event) (arn string)) (*Publisher, error) {
	if client == nil || topic == nil {
		return nil, fmt.Errorf("%w: snsonce: the client or the topic is nil", everonce.ErrInvalidArgument)
	}
	return &Publisher{client, topic}, nil
}

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: SNS does not answer, or refuses the credentials. A
// topic that does not exist counts as a failure of the event. An event that SNS would always refuse, for example as
// too large, is set aside.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	return entries.PublishTo(ctx, events, entries.Others, p.topic, entry, p.send)
}

func entry(topic string, e *outbox.Event) (made entries.Entry[types.PublishBatchRequestEntry], err error) {
	texts, err := entries.Attributes(e)
	if err != nil {
		return made, err
	}
	made.Is = types.PublishBatchRequestEntry{Message: aws.String(string(e.Payload)), MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, text := range texts {
		made.Is.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(text)}
	}
	if strings.HasSuffix(topic, ".fifo") {
		made.Is.MessageGroupId, made.Is.MessageDeduplicationId = aws.String(entries.Valid(cmp.Or(e.Key, e.ID))), aws.String(entries.Valid(e.ID))
	}
	made.Size = entries.Size(e.Payload, texts)
	return made, nil
}

func (p *Publisher) send(ctx context.Context, topic string, list []types.PublishBatchRequestEntry) ([]error, error) {
	for i := range list {
		list[i].Id = aws.String(strconv.Itoa(i))
	}
	out, err := p.client.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &topic, PublishBatchRequestEntries: list})
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(list))
	for _, f := range out.Failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i < len(errs) {
			errs[i] = entries.Failed(aws.ToString(f.Code), aws.ToString(f.Message), f.SenderFault)
		}
	}
	return errs, nil
}
