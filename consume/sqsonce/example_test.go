package sqsonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

// exampleQueues creates a queue and its dead-letter queue for an example; remove deletes them.
func exampleQueues(name string) (client *sqs.Client, queue sqsonce.Queue, remove func()) {
	client = sqs.New(sqs.Options{
		BaseEndpoint: aws.String(os.Getenv("EVERONCE_TEST_SQS_URL")), Region: "elasticmq",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil //nolint:gosec // a fake
		}),
	})
	queue.Name = fmt.Sprint("example-", name, "-", os.Getpid())
	queue.DeadLetters = queue.Name + "-dead"
	var urls []*string
	for _, name := range []string{queue.Name, queue.DeadLetters} {
		out, err := client.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &name})
		if err != nil {
			fmt.Println(err)
			return client, queue, func() {}
		}
		urls = append(urls, out.QueueUrl)
	}
	return client, queue, func() {
		for _, url := range urls {
			client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: url}) //nolint:errcheck // best effort
		}
	}
}

// Orders are published from an outbox, one of them twice: it is handled once. One that is refused is a dead letter.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, queue, remove := exampleQueues("orders")
	defer remove()
	publisher, err := sqsonce.NewPublisher(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"order-1", "order-1", "order-2"} {
		event := outbox.Event{ID: id, Topic: queue.Name, Payload: []byte(`{"id":1}`)}
		if errs := publisher.Publish(ctx, []outbox.Event{event}); errs[0] != nil {
			fmt.Println(errs[0])
			return
		}
	}

	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	seen := 0
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, m *consume.Message, _ order) error {
			if m.ID == "order-2" {
				return everonce.Permanent("no_such_customer", errors.New("there is no such customer"), nil)
			}
			fmt.Println("handled", m.ID)
			return nil
		},
		Observe: func(context.Context, *consume.Message, consume.Decision) {
			if seen++; seen == 3 {
				stop() // it drains: what was decided is done
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := sqsonce.Dial(ctx, client, queue, handler, &sqsonce.Options{Workers: consume.Workers{Concurrency: 1, Log: slog.New(slog.DiscardHandler)}})
	if err == nil {
		err = consumer.Run(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	letters, err := sqsonce.DialDeadLetters(context.Background(), client, queue)
	if err != nil {
		fmt.Println(err)
		return
	}
	for letter, err := range letters.All(context.Background(), consume.Filter{Reasons: []consume.Reason{consume.Rejected}}) {
		fmt.Println(letter.Reason, letter.Message.ID, err)
	}
	// Output:
	// handled order-1
	// rejected order-2 <nil>
}
