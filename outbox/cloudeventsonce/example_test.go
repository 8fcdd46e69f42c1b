package cloudeventsonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/cloudeventsonce"
)

// An outbox.Relay calls a publisher as here. Here events are written as lines; a service has a publisher of package
// webhook or rabbitonce instead.
func ExampleNew() {
	publisher, err := cloudeventsonce.New(outbox.WriteTo(os.Stdout), "https://example.com/orders", cloudeventsonce.Structured)
	if err != nil {
		fmt.Println(err)
		return
	}
	e := outbox.Event{
		ID: "e-1", Topic: "orders", Type: "order.placed", ContentType: "application/json", Payload: []byte(`{"id":7}`),
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	if err := errors.Join(publisher.Publish(context.Background(), []outbox.Event{e})...); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"id":"e-1","topic":"orders","type":"order.placed","content_type":"application/cloudevents+json","created_at":"2026-01-02T03:04:05.000000Z","payload":"{\"specversion\":\"1.0\",\"id\":\"e-1\",\"source\":\"https://example.com/orders\",\"type\":\"order.placed\",\"datacontenttype\":\"application/json\",\"time\":\"2026-01-02T03:04:05Z\",\"data\":{\"id\":7}}"}
}

func ExampleEvent() {
	ce, err := cloudeventsonce.Event("https://example.com/orders", &outbox.Event{ID: "e-1", Topic: "orders", Key: "order-7", Type: "order.placed"})
	fmt.Println(ce.Source(), ce.ID(), ce.Type(), ce.Subject(), ce.Extensions()["partitionkey"], err)
	// Output: https://example.com/orders e-1 order.placed order-7 order-7 <nil>
}
