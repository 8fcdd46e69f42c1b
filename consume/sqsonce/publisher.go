package sqsonce

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
	"github.com/everonce/everonce/outbox"
)

// Publisher publishes the events of an outbox to queues, up to ten in a call. An event is published when SQS has
// confirmed it.
//
// A message's body is the event's payload, which must be text. Its attributes are the event's headers, its ID
// ([AttributeID], by which [consume.ProducerID] recognises it), type, content type, and, in one attribute
// ([AttributeEvent]), its topic, key and time. SQS allows ten in all; AttributeEvent is left out if it would be the
// eleventh. In a FIFO queue the message's group is the event's key, or its ID if it has none, and its deduplication ID
// is the event's ID.
type Publisher struct {
	client Client
	queue  func(*outbox.Event) string

	mu   sync.Mutex
	urls map[string]string // by name
}

// PublisherOptions configure a publisher. The zero value of each field is its default.
type PublisherOptions struct {
	// Queue returns the name or URL of an event's queue; the name of a FIFO queue ends with ".fifo". Default: the event's
	// topic.
	Queue func(*outbox.Event) string
}

// NewPublisher returns a publisher. opts may be nil. It sends nothing. The error wraps [everonce.ErrInvalidArgument].
func NewPublisher(client Client, opts *PublisherOptions) (*Publisher, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: sqsonce: the client is nil", everonce.ErrInvalidArgument)
	}
	var o PublisherOptions
	if opts != nil {
		o = *opts
	}
	if o.Queue == nil {
		o.Queue = func(e *outbox.Event) string { return e.Topic }
	}
	return &Publisher{client: client, queue: o.Queue, urls: map[string]string{}}, nil
}

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: SQS does not answer, or refuses the credentials. A
// queue that does not exist counts as a failure of the event. An event that SQS would always refuse, for example as
// too large, is set aside.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	return entries.PublishTo(ctx, events, entries.SQS, p.queue, entry, p.send)
}

// entry returns the message of an event.
func entry(queue string, e *outbox.Event) (made entries.Entry[types.SendMessageBatchRequestEntry], err error) {
	texts, err := entries.Attributes(e)
	if err != nil {
		return made, err
	}
	made.Is = types.SendMessageBatchRequestEntry{MessageBody: aws.String(string(e.Payload)), MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, text := range texts {
		made.Is.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(text)}
	}
	if strings.HasSuffix(queue, fifoSuffix) {
		made.Is.MessageGroupId, made.Is.MessageDeduplicationId = aws.String(entries.Valid(cmp.Or(e.Key, e.ID))), aws.String(entries.Valid(e.ID))
	}
	made.Size = entries.Size(e.Payload, texts)
	return made, nil
}

func (p *Publisher) send(ctx context.Context, queue string, list []types.SendMessageBatchRequestEntry) ([]error, error) {
	url, err := p.urlOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Id = aws.String(strconv.Itoa(i))
	}
	out, err := p.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: list})
	if err != nil {
		if noQueue(err) { // it may be created again with another URL
			p.forget(queue)
		}
		return nil, err
	}
	errs := make([]error, len(list))
	for _, f := range out.Failed {
		if i := number(aws.ToString(f.Id)); i < len(errs) {
			errs[i] = entries.Failed(aws.ToString(f.Code), aws.ToString(f.Message), f.SenderFault)
		}
	}
	return errs, nil
}

func (p *Publisher) urlOf(ctx context.Context, queue string) (string, error) {
	if strings.Contains(queue, "://") {
		return queue, nil
	}
	p.mu.Lock()
	url := p.urls[queue]
	p.mu.Unlock()
	if url != "" {
		return url, nil
	}
	out, err := p.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urls[queue] = *out.QueueUrl
	return *out.QueueUrl, nil
}

func (p *Publisher) forget(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.urls, queue)
}
