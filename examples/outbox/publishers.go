package main

import (
	"database/sql"
	"io"
	"os"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/cloudeventsonce"
	"github.com/everonce/everonce/outbox/webhook"
)

// toRabbitMQ publishes to a queue with the topic's name.
func toRabbitMQ(url string) (*rabbitonce.Publisher, error) {
	return rabbitonce.NewPublisher(url, nil)
}

// toNATS publishes to the subject that is the topic.
func toNATS(url string) (*natsonce.Publisher, error) {
	return natsonce.NewPublisher(url, nil)
}

// toWebhook publishes by signed requests, as CloudEvents.
func toWebhook(url, secret string) (outbox.Publisher, error) {
	hook, err := webhook.New(webhook.Endpoint{URL: url, Secrets: []string{secret}}, nil)
	if err != nil {
		return nil, err
	}
	return cloudeventsonce.New(hook, "https://shop.example/orders", cloudeventsonce.Structured)
}

// toBilling publishes to a consumer in this process.
func toBilling(receiver *everonce.TxReceiver[*sql.Tx]) (outbox.Publisher, error) {
	consumer, err := billing(receiver)
	if err != nil {
		return nil, err
	}
	return outbox.ToConsumer(consumer, 4), nil
}

// destination returns where events go, and what closes it.
func destination(out io.Writer, to string, receiver *everonce.TxReceiver[*sql.Tx]) (p outbox.Publisher, closing func() error, err error) {
	closing = func() error { return nil }
	switch {
	case to == "stdout":
		p = outbox.WriteTo(out)
	case strings.HasPrefix(to, "amqp"):
		queue, err := toRabbitMQ(to)
		if err != nil {
			return nil, nil, err
		}
		return queue, queue.Close, nil
	case strings.HasPrefix(to, "nats"):
		subjects, err := toNATS(to)
		if err != nil {
			return nil, nil, err
		}
		return subjects, subjects.Close, nil
	case to != "":
		p, err = toWebhook(to, os.Getenv("WEBHOOK_SECRET"))
	default:
		p, err = toBilling(receiver)
	}
	return p, closing, err
}
