package oncetest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
)

// ExampleRecordKeys tests a producer that sets the order's own ID. In a real test the messages come from the
// broker, through the consumer that the application has.
func ExampleRecordKeys() {
	test := func(t testing.TB) {
		keys := oncetest.RecordKeys(consume.ProducerID())
		for range 2 {
			if _, err := keys.Key(&consume.Message{ID: "order-7"}); err != nil { // the consumer calls it
				t.Error(err)
			}
		}
		keys.WantOne(context.Background(), t, 2)
		fmt.Println("one key")
	}
	test(&testing.B{})
	// Output: one key
}
