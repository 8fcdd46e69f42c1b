package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

// placed are two events, as a relay hands them to a publisher.
func placed() []outbox.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []outbox.Event{
		{ID: "e-1", Topic: "orders", Key: "order-7", Type: "order.placed", ContentType: "application/json", Payload: []byte(`{"id":7}`), CreatedAt: at, Attempts: 1},
		{ID: "e-2", Topic: "orders", Key: "order-7", Type: "order.paid", ContentType: "application/json", Payload: []byte(`{"id":7}`), CreatedAt: at, Attempts: 1},
	}
}

// show prints what became of events.
func show(errs []error) {
	if len(errs) == 0 {
		fmt.Println("all were published")
	}
	for _, err := range errs {
		fmt.Println(err)
	}
}

// A look at what would be published.
func ExampleWriteTo() {
	show(outbox.WriteTo(os.Stdout).Publish(context.Background(), placed()))
	// Output:
	// {"id":"e-1","topic":"orders","key":"order-7","type":"order.placed","content_type":"application/json","created_at":"2026-01-02T03:04:05.000000Z","payload":{"id":7}}
	// {"id":"e-2","topic":"orders","key":"order-7","type":"order.paid","content_type":"application/json","created_at":"2026-01-02T03:04:05.000000Z","payload":{"id":7}}
	// all were published
}

// A consumer in this process handles each event once, also one that is published again.
func ExampleToConsumer() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := consume.New(receiver, consume.Spec[struct{ ID int }]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, m *consume.Message, o struct{ ID int }) error {
			fmt.Println(m.Type, o.ID)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher := outbox.ToConsumer(consumer, 4)
	for range 2 {
		show(publisher.Publish(context.Background(), placed()))
	}
	// Output:
	// order.placed 7
	// order.paid 7
	// <nil>
	// <nil>
	// <nil>
	// <nil>
}

// One makes a publisher of a function that sends one event. Its error decides when the event is tried again.
func ExampleOne() {
	publisher := outbox.One(8, func(_ context.Context, e *outbox.Event) error {
		switch e.Type {
		case "order.placed":
			return outbox.RetryAfter(errors.New("too many requests"), time.Minute) // counted, and not tried before a minute has passed
		case "order.lost":
			return fmt.Errorf("%w: no receiver is listening", outbox.ErrUnavailable) // not counted; the topic is paused
		}
		return everonce.Permanent("unknown_type", nil, nil) // set aside at once
	})
	show(publisher.Publish(context.Background(), placed()))
	// Output:
	// too many requests
	// outbox: not sent: an event before it with the same key was not published
}

// Each topic has a publisher. The publisher of "" gets the events of all other topics.
func ExampleRoute() {
	named := func(name string) outbox.Publisher {
		return outbox.One(1, func(_ context.Context, e *outbox.Event) error {
			fmt.Println(name, e.ID)
			return nil
		})
	}
	publisher := outbox.Route(map[string]outbox.Publisher{"orders": named("to the queue:"), "": named("to the log:")})
	publisher.Publish(context.Background(), placed())
	publisher.Publish(context.Background(), []outbox.Event{{ID: "e-3", Topic: "customers"}})
	// Output:
	// to the queue: e-1
	// to the queue: e-2
	// to the log: e-3
}

// A publisher that sends many at a time, and cannot hold back those behind one that fails: it gets each key once in a
// call.
func ExampleInOrder() {
	publisher := outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
		return outbox.InOrder(ctx, events, func(_ context.Context, events []outbox.Event) []error {
			for _, e := range events {
				fmt.Print(e.ID, " ")
			}
			fmt.Println("together")
			return nil
		})
	})
	publisher.Publish(context.Background(), append(placed(), outbox.Event{ID: "e-3", Topic: "orders", Key: "order-8"}))
	// Output:
	// e-1 e-3 together
	// e-2 together
}
