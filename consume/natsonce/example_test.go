package natsonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

var exampleStream = fmt.Sprint("EXAMPLE-", os.Getpid())

// publishExample publishes orders to a stream of the examples' own, which remove removes.
func publishExample(ids ...string) (remove func()) {
	conn, err := nats.Connect(os.Getenv("EVERONCE_TEST_NATS_URL"))
	if err != nil {
		fmt.Println(err)
		return func() {}
	}
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: exampleStream, Subjects: []string{exampleStream + ".*"}})
	}
	for _, id := range ids {
		_, failed := js.PublishMsg(context.Background(), &nats.Msg{Subject: exampleStream + ".placed", Header: nats.Header{"Order-Id": {id}}, Data: []byte(`{"id":"` + id + `"}`)})
		err = errors.Join(err, failed)
	}
	if err != nil {
		fmt.Println(err)
	}
	return func() {
		for _, name := range []string{exampleStream, exampleStream + "-dead", "KV_" + exampleStream + "-billing-retries"} {
			js.DeleteStream(context.Background(), name) //nolint:errcheck // best effort
		}
		conn.Close()
	}
}

// An order that was published twice is handled once; one that is refused is a dead letter.
func Example() {
	defer publishExample("order-1", "order-1", "order-2")()
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
		Key:      consume.Header("Order-Id"),
		Handle: func(_ context.Context, _ *consume.Message, o order) error {
			fmt.Println("handling", o.ID)
			if o.ID == "order-2" {
				return everonce.Permanent("no_such_customer", errors.New("there is no such customer"), nil)
			}
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
	url, queue := os.Getenv("EVERONCE_TEST_NATS_URL"), natsonce.Queue{Stream: exampleStream}
	consumer, err := natsonce.Dial(ctx, url, queue, handler, &natsonce.Options{Workers: consume.Workers{Concurrency: 1, Log: quiet}})
	if err == nil {
		err = consumer.Run(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	letters, err := natsonce.DialDeadLetters(context.Background(), url, queue, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // it only looked
	for letter, err := range letters.All(context.Background(), consume.Filter{Reasons: []consume.Reason{consume.Rejected}}) {
		fmt.Println(letter.Reason, letter.Message.Headers["Order-Id"], err)
	}
	// Output:
	// handling order-1
	// handling order-2
	// rejected order-2 <nil>
}

// An outbox.Relay uses a publisher like this: events go to the subject that is their topic. An event that is published
// again, as after a relay was killed, is stored once, and an event for which the stream expected another sequence is
// set aside.
func ExampleNewPublisher() {
	defer publishExample()()
	publisher, err := natsonce.NewPublisher(os.Getenv("EVERONCE_TEST_NATS_URL"), &natsonce.PublisherOptions{
		Expect: func(e *outbox.Event) []jetstream.PublishOpt { // each order is placed once
			return []jetstream.PublishOpt{jetstream.WithExpectStream(exampleStream), jetstream.WithExpectLastSequencePerSubject(0)}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close() //nolint:errcheck // what the stream has confirmed is published
	for _, id := range []string{"e-1", "e-1", "e-2"} {
		e := outbox.Event{ID: id, Topic: exampleStream + ".order-7", ContentType: "application/json", Payload: []byte(`{"id":"order-7"}`)}
		err := publisher.Publish(context.Background(), []outbox.Event{e})[0]
		refused, ok := errors.AsType[*everonce.PermanentError](err)
		if ok {
			fmt.Println(id, "is set aside:", refused.Code)
			continue
		}
		fmt.Println(id, err)
	}
	// Output:
	// e-1 <nil>
	// e-1 <nil>
	// e-2 is set aside: sequence
}
