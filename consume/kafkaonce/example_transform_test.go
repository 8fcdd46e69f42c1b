package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/outbox"
)

// A topic of orders becomes one of invoices. Output and offsets are one transaction of Kafka's: who reads committed, as the reader here and
// each Consumer, sees one invoice for each order.
func ExampleTransform() {
	orders, removeOrders := exampleTopic()
	defer removeOrders()
	invoices, removeInvoices := exampleTopic()
	defer removeInvoices()
	url := os.Getenv("EVERONCE_TEST_KAFKA_URL") // kafka://localhost:9092
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	transform, err := kafkaonce.DialTransform(ctx, url, orders.Name, orders.Name, func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{{Topic: invoices.Name, Key: r.Key, Value: []byte(`{"invoice":` + string(r.Value) + `}`), Headers: r.Headers}}, nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- transform.Run(ctx) }()

	publisher, err := kafkaonce.NewPublisher(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close() //nolint:errcheck // what the broker has confirmed is published
	order := outbox.Event{ID: "o-1", Key: "alice", Topic: orders.Name, ContentType: "application/json", Payload: []byte(`{"id":"o-1"}`)}
	if err := errors.Join(publisher.Publish(ctx, []outbox.Event{order})...); err != nil {
		fmt.Println(err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")), kgo.ConsumeTopics(invoices.Name), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	for read := 0; read == 0; {
		fetches := reader.PollFetches(ctx)
		for _, r := range fetches.Records() {
			fmt.Printf("%s: %s\n", r.Key, r.Value)
		}
		read = fetches.NumRecords()
	}
	stop() // a program ends with its signals
	fmt.Println(<-ended)
	// Output:
	// alice: {"invoice":{"id":"o-1"}}
	// <nil>
}
