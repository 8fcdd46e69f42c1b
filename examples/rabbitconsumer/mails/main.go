// Command mails sends a mail for each order of a RabbitMQ queue, once, by records in Redis. It takes REDIS_URL and
// BROKER_URL, and runs until it is interrupted.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/redisstore"
)

type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
}

// send asks a mail service for a mail. The reference is the same in every attempt: by it the service's log tells
// whether the mail was sent.
type send func(ctx context.Context, to, reference string) error

var (
	errNoSuchCustomer = errors.New("there is no such customer")
	errNotReached     = errors.New("the mail service cannot be reached")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("REDIS_URL"), os.Getenv("BROKER_URL"), "orders.mail", printed)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// printed stands for a mail service.
func printed(_ context.Context, to, reference string) error {
	log.Printf("a mail to %s, reference %s", to, reference)
	return nil
}

func run(ctx context.Context, redis, broker, queue string, mail send) error {
	options, err := rueidis.ParseURL(redis)
	if err != nil {
		return err
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := redisstore.New(ctx, client, nil)
	if err != nil {
		return err // it says what to set on the server
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	consumer, err := mails(ctx, broker, queue, receiver, mail)
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func mails(ctx context.Context, broker, queue string, receiver *everonce.Receiver, mail send) (*rabbitonce.Consumer, error) {
	handler, err := consume.New(receiver, consume.Spec[Order]{
		Consumer: "mail",
		Key:      consume.ProducerID(),
		Handle: func(ctx context.Context, m *consume.Message, o Order) error {
			attempt, _ := everonce.AttemptFrom(ctx)
			err := mail(ctx, o.Customer, attempt.DownstreamKey("mail"))
			switch {
			case errors.Is(err, errNoSuchCustomer):
				return everonce.Permanent("no_such_customer", err, nil) // a dead letter, at once
			case errors.Is(err, errNotReached):
				return everonce.NotDone(err) // no mail was sent: it is tried again
			}
			return err // what may have been sent or not, as after a timeout, is for the policy
		},
	})
	if err != nil {
		return nil, err
	}
	return rabbitonce.Dial(ctx, broker, rabbitonce.Queue{Name: queue}, handler, nil)
}
