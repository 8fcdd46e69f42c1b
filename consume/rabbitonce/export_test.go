package rabbitonce

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func init() { askWithin = 3 * time.Second }

// PublisherOf returns what publishes through one publisher.
func PublisherOf(url string) func(context.Context) error {
	p := newPublisher(dialing{url: url, heartbeat: time.Second})
	return func(ctx context.Context) error { return p.publish(ctx, "queue", amqp.Publishing{}) }
}
