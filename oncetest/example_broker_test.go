package oncetest_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// A hundred parcels are ordered, some of the orders several times, and a fifth of the acknowledgements is lost. A
// hundred parcels are shipped.
func ExampleRunBroker() {
	var t Reporter // in a test: its *testing.T
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	var shipped atomic.Int64
	c, err := consume.New(recv, consume.Spec[struct{}]{
		Consumer: "shipping", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, struct{}) error {
			shipped.Add(1)
			return nil
		},
	})
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	orders := make([]*consume.Message, 100)
	for i := range orders {
		orders[i] = &consume.Message{ID: fmt.Sprint("order-", i), Body: []byte(`{}`)}
	}
	told := oncetest.RunBroker(t, c, orders, nil)
	fmt.Println("more deliveries than orders:", told.Deliveries > 100, "sent again:", told.Copies > 0, "acknowledgements lost:", told.Lost > 0)
	fmt.Println("shipped:", shipped.Load())
	// Output:
	// more deliveries than orders: true sent again: true acknowledgements lost: true
	// shipped: 100
}

// A consumer's verdict on a delivery is an answer that [oncetest.Run] understands.
func ExampleAnswerOfVerdict() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(recv, consume.Spec[struct{}]{
		Consumer: "shipping", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, struct{}) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver := func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
		return oncetest.AnswerOfVerdict(c.Handle(ctx, &consume.Message{ID: op.Key, Body: []byte(`{}`)}))
	}
	for _, key := range []string{"order-7", "order-7", ""} {
		a := deliver(context.Background(), oncetest.Operation{Key: key})
		fmt.Println(a.Outcome, a.Result)
	}
	// Output:
	// executed ack
	// replayed ack
	// invalid set_aside: no_key
}
