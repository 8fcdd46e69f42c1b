package consume_test

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// The producer sets the sending time in each message: a resend is the same message, and one with another amount is a
// mismatch.
func ExampleFingerprint() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consume.New(receiver, consume.Spec[payment]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle:   func(context.Context, *consume.Message, payment) error { return nil },
		Compare:  consume.Compare{JSONExcept: []string{"/sent_at"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{
		`{"order": "7", "cents": 1200, "sent_at": "10:00:00"}`,
		`{"cents":1200,"order":"7","sent_at":"10:00:05"}`,
		`{"order": "7", "cents": 1300, "sent_at": "10:00:10"}`,
	} {
		v := c.Handle(context.Background(), &consume.Message{ID: "m-1", Body: []byte(body)})
		fmt.Println(v.Outcome, v.Disposition)
	}
	// Output:
	// executed ack
	// replayed ack
	// mismatch set_aside
}
