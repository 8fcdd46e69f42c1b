package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// setAsideExample leaves messages among the dead letters: a consumer refuses each of them for good.
func setAsideExample(ids ...string) {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	refused := 0
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, order) error {
			return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
		},
		Observe: func(context.Context, *consume.Message, consume.Decision) {
			if refused++; refused == len(ids) {
				stop()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := rabbitonce.Dial(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), exampleQueue, handler, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1, Log: quiet}})
	if err != nil {
		fmt.Println(err)
		return
	}
	publishExample(ids...)
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// List the dead letters with their reasons. Reading changes nothing.
func ExampleDialDeadLetters() {
	defer removeExample()
	setAsideExample("o-1", "o-2")

	ctx := context.Background()
	letters, err := rabbitonce.DialDeadLetters(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), exampleQueue, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // they were only looked at
	for letter, err := range letters.All(ctx, consume.Filter{Queue: exampleQueue.Name}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(letter.Message.ID, letter.Consumer, letter.Reason, letter.Attempts)
	}
	// Output:
	// o-1 billing rejected 1
	// o-2 billing rejected 1
}

// Those that were looked at are replayed, and no others: by their IDs.
func ExampleDeadLetters_Replay() {
	defer removeExample()
	setAsideExample("o-1", "o-2")

	ctx := context.Background()
	letters, err := rabbitonce.DialDeadLetters(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), exampleQueue, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // what the broker has confirmed is done
	all, err := letters.List(ctx, consume.Filter{Reasons: []consume.Reason{consume.Rejected}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, letter := range all {
		if letter.Message.ID == "o-2" {
			replayed, err := letters.Replay(ctx, consume.Filter{ID: letter.ID})
			fmt.Println("replayed", replayed, err)
		}
	}
	left, err := letters.List(ctx, consume.Filter{})
	for _, letter := range left {
		fmt.Println("left", letter.Message.ID, err)
	}
	// Output:
	// replayed 1 <nil>
	// left o-1 <nil>
}

// Refusals that are older than a month are removed for good.
func ExampleDeadLetters_Discard() {
	defer removeExample()
	setAsideExample("o-1")

	ctx := context.Background()
	letters, err := rabbitonce.DialDeadLetters(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), exampleQueue, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // as above
	old := consume.Filter{Reasons: []consume.Reason{consume.Rejected}, Before: time.Now().AddDate(0, -1, 0)}
	fmt.Println(letters.Discard(ctx, old))
	old.Before = time.Time{} // of whatever age
	fmt.Println(letters.Discard(ctx, old))
	// Output:
	// 0 <nil>
	// 1 <nil>
}

// A filter can be asked about a letter without a broker.
func ExampleFilter_Matches() {
	letter := consume.DeadLetter{Queue: "orders", Death: consume.Death{Reason: consume.Unknown}}
	unsettled := consume.Filter{Queue: "orders", Reasons: []consume.Reason{consume.Unknown}}
	exhausted := consume.Filter{Queue: "orders", Reasons: []consume.Reason{consume.Exhausted}}
	fmt.Println(unsettled.Matches(&letter), exhausted.Matches(&letter))
	// Output: true false
}
