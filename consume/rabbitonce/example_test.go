package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// exampleQueue is a queue of the examples' own.
var exampleQueue = rabbitonce.Queue{Name: fmt.Sprint("example.", os.Getpid())}

// publishExample publishes messages, and removeExample removes the queues. A queue that has just been declared may lose what is
// not confirmed.
func publishExample(ids ...string) {
	withBroker(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, id := range ids {
			confirm, err := ch.PublishWithDeferredConfirm("", exampleQueue.Name, true, false, message(id))
			if err != nil {
				return err
			}
			if !confirm.Wait() {
				return errors.New("the broker has not taken the message")
			}
		}
		return nil
	})
}

func removeExample() {
	withBroker(func(ch *amqp.Channel) error {
		var errs []error
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			_, err := ch.QueueDelete(exampleQueue.Name+suffix, false, false, false)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func withBroker(do func(*amqp.Channel) error) {
	conn, err := amqp.Dial(os.Getenv("EVERONCE_TEST_RABBITMQ_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	if err != nil {
		fmt.Println(err)
	}
}

func Example() {
	defer removeExample()
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
			if o.ID == "o-2" {
				return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
			}
			fmt.Println("charged", o.ID)
			return nil
		},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) {
			fmt.Println(v.Outcome)
			if seen++; seen == 3 {
				stop()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	url := os.Getenv("EVERONCE_TEST_RABBITMQ_URL")
	c, err := rabbitonce.Dial(ctx, url, exampleQueue, handler, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	publishExample("o-1", "o-1", "o-2")
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}

	letters, err := rabbitonce.DialDeadLetters(context.Background(), url, exampleQueue, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // what the broker has confirmed is done
	all, err := letters.List(context.Background(), consume.Filter{})
	for _, l := range all {
		fmt.Println(l.Reason, l.Message.ID, err)
	}
	n, err := letters.Replay(context.Background(), consume.Filter{Reasons: []consume.Reason{consume.Rejected}})
	fmt.Println("replayed", n, err)
	// Output:
	// charged o-1
	// executed
	// replayed
	// rejected
	// rejected o-2 <nil>
	// replayed 1 <nil>
}

// A consumer that takes messages from a queue until its context ends. Dial declares the queues.
func ExampleDial() {
	defer removeExample()
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, o order) error {
			fmt.Println("charged", o.ID)
			stop() // a service ends by a signal: signal.NotifyContext
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := rabbitonce.Dial(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), exampleQueue, handler, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close() //nolint:errcheck // for where Run is not reached
	publishExample("o-1")
	fmt.Println(c.Run(ctx))
	// Output:
	// charged o-1
	// <nil>
}
