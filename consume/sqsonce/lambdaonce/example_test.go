package lambdaonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/consume/sqsonce/lambdaonce"
	"github.com/everonce/everonce/store/memstore"
)

// A function is started by lambda.Start(lambdaonce.Handler(consumer)). Lambda calls it with a batch, and leaves in the queue what its
// answer names. Here the client is a stand-in; with AWS it is sqs.NewFromConfig(cfg).
func ExampleHandler() {
	ctx, client := context.Background(), &queues{delays: map[string]int32{}}
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.BrokerID(), // for want of another one here
		Handle: func(_ context.Context, _ *consume.Message, o order) error {
			if o.Do == "fail" {
				return everonce.NotDone(errors.New("the bank is closed"))
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := sqsonce.Dial(ctx, client, sqsonce.Queue{Name: "orders"}, handler, &sqsonce.Options{Workers: consume.Workers{Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := lambdaonce.Handler(consumer)(ctx, events.SQSEvent{Records: []events.SQSMessage{
		{MessageId: "m-1", ReceiptHandle: "r-1", EventSource: "aws:sqs", Body: `{"do":"pay"}`},
		{MessageId: "m-2", ReceiptHandle: "r-2", EventSource: "aws:sqs", Body: `{"do":"fail"}`},
	}})
	fmt.Println(answer.BatchItemFailures, err)
	// Output: [{m-2}] <nil>
}
