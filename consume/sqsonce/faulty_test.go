package sqsonce_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/everonce/everonce/consume/sqsonce"
)

// faulty is a client some of whose calls go wrong.
type faulty struct {
	sqsonce.Client
	deleteMessage func(in *sqs.DeleteMessageInput) (done bool)
	change        func(in *sqs.ChangeMessageVisibilityInput) (done bool)
	changed       func(in *sqs.ChangeMessageVisibilityInput)
	received      func(out *sqs.ReceiveMessageOutput)
	attributes    func(out *sqs.GetQueueAttributesOutput)
	empty         func() bool                           // an answer without messages
	lost          func(in *sqs.DeleteMessageInput) bool // a deletion that fails
	refused       func(call string) (code string)       // an answer with an error
	failures      atomic.Int32                          // of ReceiveMessage, by the server
}

func (f *faulty) refuse(call string) error {
	if f.refused != nil {
		if code := f.refused(call); code != "" {
			return &smithy.GenericAPIError{Code: code}
		}
	}
	return nil
}

func (f *faulty) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if err := f.refuse("SendMessage"); err != nil {
		return nil, err
	}
	return f.Client.SendMessage(ctx, in, o...)
}

func (f *faulty) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	out, err := f.Client.GetQueueAttributes(ctx, in, o...)
	if err == nil && f.attributes != nil {
		f.attributes(out)
	}
	return out, err
}

func (f *faulty) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	if f.deleteMessage != nil && f.deleteMessage(in) {
		return &sqs.DeleteMessageOutput{}, nil
	}
	if f.lost != nil && f.lost(in) {
		return nil, errors.New("the answer was lost")
	}
	return f.Client.DeleteMessage(ctx, in, o...)
}

func (f *faulty) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	if f.change != nil && f.change(in) {
		return &sqs.ChangeMessageVisibilityOutput{}, nil
	}
	out, err := f.Client.ChangeMessageVisibility(ctx, in, o...)
	if f.changed != nil {
		f.changed(in)
	}
	return out, err
}

func (f *faulty) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if f.empty != nil && f.empty() {
		return &sqs.ReceiveMessageOutput{}, nil
	}
	if err := f.refuse("ReceiveMessage"); err != nil {
		return nil, err
	}
	out, err := f.Client.ReceiveMessage(ctx, in, o...)
	if err != nil {
		f.failures.Add(1)
	}
	if err == nil && f.received != nil {
		f.received(out)
	}
	return out, err
}
