package keys_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/keys"
	"github.com/everonce/everonce/store/memstore"
)

// Example handles a task that Celery has published twice.
func Example() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	consumer, err := billing(receiver, func(_ context.Context, m *consume.Message, _ json.RawMessage) error {
		fmt.Println("charged by", m.Headers["task"])
		return nil
	})
	if err != nil {
		panic(err)
	}
	task := consume.Message{
		Headers: map[string]string{"id": "5d1a7a6e", "task": "payments.charge"},
		Body:    []byte(`[["order-1", 1200], {}, {}]`),
	}
	for range 2 {
		fmt.Println(consumer.Handle(context.Background(), &task).Outcome)
	}
	// Output:
	// charged by payments.charge
	// executed
	// replayed
}

func billing(receiver *everonce.Receiver, charge func(context.Context, *consume.Message, json.RawMessage) error) (*consume.Consumer, error) {
	strategy := keys.Celery()
	consumer, err := consume.New(receiver, consume.Spec[json.RawMessage]{
		Consumer: "billing", Key: strategy.Key, Compare: strategy.Compare,
		Handle: charge,
	})
	return consumer, err
}
