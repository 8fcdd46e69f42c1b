// Command publish puts a message into a RabbitMQ queue: publish QUEUE ID BODY. It takes BROKER_URL.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: publish QUEUE ID BODY")
	}
	if err := publish(context.Background(), os.Getenv("BROKER_URL"), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// publish returns nil when the message is in the queue. After an error it may be there or not: publish it again, with
// the same ID.
func publish(ctx context.Context, broker, queue, id, body string) error {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // confirmed messages are stored
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	message := amqp.Publishing{MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(body)}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, message) // mandatory
	if err != nil {
		return err
	}
	if ok, err := confirm.WaitContext(ctx); err != nil {
		return err
	} else if !ok {
		return fmt.Errorf("the broker has not taken message %s", id)
	}
	if len(returned) > 0 { // what is returned is confirmed too
		return fmt.Errorf("there is no queue %s, so message %s is nowhere: start its consumer, and publish it again", queue, id)
	}
	return nil
}
