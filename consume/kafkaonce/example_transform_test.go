package kafkaonce_test

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume/kafkaonce"
)

// A topic of orders becomes one of invoices. Output and offsets are one transaction of Kafka's.
func ExampleTransform() {
	orders, removeOrders := exampleTopic()
	defer removeOrders()
	invoices, removeInvoices := exampleTopic()
	defer removeInvoices()
	url := os.Getenv("EVERONCE_TEST_KAFKA_URL") // kafka://localhost:9092
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	transform, err := kafkaonce.NewTransform(ctx, url, orders.Name, "invoicing", func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{{Topic: invoices.Name, Key: r.Key, Value: r.Value, Headers: r.Headers}}, nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop() // the example ends at once; a program ends with its signals
	fmt.Println(transform.Run(ctx))
	// Output: <nil>
}
