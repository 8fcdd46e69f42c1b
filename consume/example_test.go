package consume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

type payment struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

func ExampleNew() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(receiver, consume.Spec[payment]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, p payment) error {
			if p.Cents <= 0 {
				return everonce.Permanent("no_amount", errors.New("there is nothing to charge"), nil)
			}
			fmt.Println("charged", p.Order)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// An adapter, such as consume/rabbitonce, does this with what a broker delivers.
	for _, m := range []consume.Message{
		{ID: "m-1", Body: []byte(`{"order": "7", "cents": 1200}`)},
		{ID: "m-1", Body: []byte(`{"order": "7", "cents": 1200}`), Redelivered: true},
		{ID: "m-2", Body: []byte(`{"order": "8"}`)},
		{Body: []byte(`{"order": "9", "cents": 100}`)},
	} {
		v := c.Handle(context.Background(), &m)
		fmt.Printf("%v %q\n", v.Disposition, v.Death.Reason)
	}
	// Output:
	// charged 7
	// ack ""
	// ack ""
	// set_aside "rejected"
	// set_aside "no_key"
}

func ExampleConsumer_Serve() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(receiver, consume.Spec[payment]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, payment) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	in := make(chan consume.Delivery, 1)
	d := message("m-1") // a consume.Delivery of the adapter's
	in <- d
	close(in)
	if err := c.Serve(context.Background(), in, &consume.Workers{Concurrency: 1}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(d.ended)
	// Output: [ack]
}

// An adapter gets the decision on each delivery, and answers the broker accordingly.
func ExampleConsumer_Handle() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(receiver, consume.Spec[payment]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, payment) error {
			return everonce.NotDone(errors.New("the bank is closed"))
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for retries := 9; retries <= 10; retries++ {
		v := c.Handle(context.Background(), &consume.Message{ID: "m-1", Body: []byte(`{}`), Retries: retries})
		fmt.Println(c.Name(), v.Outcome, v.Disposition, v.Death.Reason, v.Err)
	}
	// Output:
	// billing failed retry  the bank is closed
	// billing failed set_aside exhausted the bank is closed
}

// An adapter rejects invalid options before it connects to a broker.
func ExampleConsumer_CheckWorkers() {
	c, err := consume.NewNatural(consume.NaturalSpec[payment]{
		Consumer: "ledger", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, payment) (bool, error) { return true, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.CheckWorkers(&consume.Workers{Concurrency: 4}))
	fmt.Println(errors.Is(c.CheckWorkers(&consume.Workers{Batch: 100}), everonce.ErrInvalidArgument)) // batches need a transaction
	// Output:
	// <nil>
	// true
}

func ExampleConsumer_KeyOf() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(receiver, consume.Spec[payment]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, payment) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.KeyOf(&consume.Message{ID: "m-1"}))
	// Output: {billing m-1} <nil>
}

func printKey(k consume.Key, m consume.Message) {
	key, err := k(&m)
	fmt.Println(key, err)
}

func ExampleProducerID() {
	printKey(consume.ProducerID(), consume.Message{ID: "m-1"})
	printKey(consume.ProducerID(), consume.Message{})
	// Output:
	// m-1 <nil>
	//  consume: no key: the message has no ID
}

func ExampleHeader() {
	printKey(consume.Header("event-id"), consume.Message{Headers: map[string]string{"event-id": "e-7"}})
	// Output: e-7 <nil>
}

func ExampleJSONPointer() {
	printKey(consume.JSONPointer("/order/id"), consume.Message{Body: []byte(`{"order": {"id": 12345678901234567890}}`)})
	// Output: 12345678901234567890 <nil>
}

func ExampleCloudEvent() {
	printKey(consume.CloudEvent(), consume.Message{
		ContentType: "application/cloudevents+json",
		Body:        []byte(`{"specversion": "1.0", "source": "/shop", "id": "a-7"}`),
	})
	// Output: /shop:a-7 <nil>
}

func ExampleComposite() {
	key := consume.Composite("Order", consume.JSONPointer("/order/id"), consume.ProducerID())
	printKey(key, consume.Message{ID: "msg-7", Body: []byte(`{"order": {"id": 12345}}`)})
	// Output: Order:12345:msg-7 <nil>
}

func ExampleFirstOf() {
	key := consume.FirstOf(consume.CloudEvent(), consume.Composite("legacy", consume.ProducerID()))
	printKey(key, consume.Message{ID: "m-1"})
	// Output: legacy:m-1 <nil>
}

func ExampleContentHash() {
	a, _ := consume.ContentHash()(&consume.Message{ID: "m-1", Body: []byte(`{"order": 7}`)})
	b, _ := consume.ContentHash()(&consume.Message{ID: "m-2", Body: []byte(`{"order": 7}`)})
	fmt.Println(a == b) // two orders with the same content are one
	// Output: true
}

func ExampleBrokerID() {
	printKey(consume.BrokerID(), consume.Message{BrokerID: "orders/3/81"})
	// Output: orders/3/81 <nil>
}
