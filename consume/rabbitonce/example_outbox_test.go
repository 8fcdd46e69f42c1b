package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

// An outbox.Relay uses a publisher like this: events go to the queue that their topic names. An event that is
// published again, as after a relay was killed, takes effect once.
func ExampleNewPublisher() {
	defer removeExample()
	url := os.Getenv("EVERONCE_TEST_RABBITMQ_URL")
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	seen := 0
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, o order) error {
			fmt.Println("charged", o.ID)
			return nil
		},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) {
			fmt.Println(v.Outcome)
			if seen++; seen == 2 {
				stop()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := rabbitonce.Dial(ctx, url, exampleQueue, handler, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := rabbitonce.NewPublisher(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close() //nolint:errcheck // what the broker has confirmed is done

	e := outbox.Event{ID: "e-1", Topic: exampleQueue.Name, ContentType: "application/json", Payload: []byte(`{"id":"o-1"}`)}
	for range 2 {
		if err := errors.Join(publisher.Publish(ctx, []outbox.Event{e})...); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(c.Run(ctx))

	e.Topic = "no.listener"
	err = errors.Join(publisher.Publish(context.Background(), []outbox.Event{e})...)
	fmt.Println("unroutable:", errors.Is(err, rabbitonce.ErrUnroutable))
	// Output:
	// charged o-1
	// executed
	// replayed
	// <nil>
	// unroutable: true
}
