package main

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// rabbit is RabbitMQ.
type rabbit struct {
	url  string
	conn *amqp.Connection
	ch   *amqp.Channel
}

func newRabbit(_ context.Context, url string) (_ broker, err error) {
	r := &rabbit{url: url}
	if r.conn, err = amqp.Dial(url); err != nil {
		return nil, err
	}
	r.ch, err = r.conn.Channel()
	return r, err
}

func (r *rabbit) serve(ctx context.Context, queue string, h *consume.Consumer, workers consume.Workers) (func(context.Context) error, error) {
	c, err := rabbitonce.Dial(ctx, r.url, rabbitonce.Queue{Name: queue}, h, &rabbitonce.Options{Workers: workers})
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func (r *rabbit) bare(ctx context.Context, queue string, handle func(context.Context, []byte) error) error {
	arguments := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)}
	if _, err := r.ch.QueueDeclare(queue, true, false, false, false, arguments); err != nil {
		return err
	}
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(2*consumerWorkers, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for range consumerWorkers {
		go func() {
			for d := range deliveries {
				if handle(ctx, d.Body) == nil {
					d.Ack(false) //nolint:errcheck // the measurement is over
				}
			}
		}()
	}
	context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // as above
	return nil
}

func (r *rabbit) send(ctx context.Context, queue string, messages []sent) error {
	for _, m := range messages {
		msg := amqp.Publishing{MessageId: m.id, ContentType: "application/json", Body: m.body}
		if err := r.ch.PublishWithContext(ctx, "", queue, false, false, msg); err != nil {
			return err
		}
	}
	return nil
}

func (r *rabbit) remove(queues []string) error {
	var errs []error
	for _, q := range queues {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			_, err := r.ch.QueueDelete(q+suffix, false, false, false)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, r.conn.Close())...)
}
