package rabbitonce

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

func init() { askTimeout = 3 * time.Second }

// AskWithin sets the timeout of requests to the broker for the whole process, until restore is called.
func AskWithin(d time.Duration) (restore func()) {
	before := askTimeout
	askTimeout = d
	return func() { askTimeout = before }
}

func publisherTo(url string) *publisher {
	return newPublisher(dialing{urls: func(context.Context) ([]string, error) { return []string{url}, nil }, heartbeat: time.Second})
}

// PublisherOf returns what publishes through one publisher, with a heartbeat of a second.
func PublisherOf(url string) (publish func(ctx context.Context, queue string, msg amqp.Publishing) error, end func() error) {
	p := publisherTo(url)
	return p.publish, p.close
}

// PublishByAnEndedChannel publishes by a channel that has ended since the publisher took it.
func PublishByAnEndedChannel(ctx context.Context, url, queue string) error {
	p := publisherTo(url)
	c, err := p.channel(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.ch.Close(), c.publish(ctx, queue, amqp.Publishing{Headers: amqp.Table{}}), p.close())
}

// DelayFor returns the delay that a queue gives a message that is to come again after a time.
func DelayFor(q Queue, after time.Duration) (time.Duration, error) {
	c, err := q.withDefaults()
	if err != nil {
		return 0, err
	}
	return copies.DelayFor(c.Delays, after), nil
}

// LetterID returns the ID of a dead letter.
func DeadLetterID(d *amqp.Delivery) string {
	l := deadLetterOf(d, "orders")
	return l.ID
}

// Copies returns the copies that are made of a delivery: one that comes again, and a dead letter.
func Copies(d *amqp.Delivery, queue string, retries int, l *consume.Death) (again, dead amqp.Publishing) {
	m := messageOf(d, queue)
	return retryCopy(d, m, queue, retries, l.Last), deadLetter(d, m, queue, l)
}

// MessageOf returns a delivery as a consumer sees it, and LetterOf a dead letter as its reader does.
func MessageOf(d *amqp.Delivery, queue string) *consume.Message { return messageOf(d, queue) }

// LetterOf is explained above.
func LetterOf(d *amqp.Delivery, queue string) consume.DeadLetter { return deadLetterOf(d, queue) }
