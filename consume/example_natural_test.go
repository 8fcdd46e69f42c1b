package consume_test

import (
	"context"
	"fmt"
	"log"

	"github.com/everonce/everonce/consume"
)

// The effect is an insert under a unique key, here into a map.
func ExampleNewNatural() {
	type event struct{ Text string }
	events := map[string]event{}
	c, err := consume.NewNatural(consume.NaturalSpec[event]{
		Consumer: "archive",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, m *consume.Message, e event) (bool, error) {
			if _, there := events[m.ID]; there {
				return false, nil
			}
			events[m.ID] = e
			return true, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	m := &consume.Message{ID: "event-1", Body: []byte(`{"Text":"hello"}`)}
	for range 2 {
		v := c.Handle(context.Background(), m)
		fmt.Println(v.Disposition, v.Outcome)
	}
	fmt.Println(len(events), "event")
	// Output:
	// ack executed
	// ack replayed
	// 1 event
}
