package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/oncetest"
)

// TestProducerKeepsTheKey is how a team tests its own producer: what it publishes again has the key that it had before.
func TestProducerKeepsTheKey(t *testing.T) {
	broker, queue := testserver.URL(t, "rabbitmq"), "onekey."+strings.ToLower(rand.Text())
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	newConsumer := func(t *testing.T, key consume.Key) *rabbitonce.Consumer {
		t.Helper()
		handler, err := consume.NewNatural(consume.NaturalSpec[Order]{
			Consumer: "billing", Key: key,
			Handle: func(context.Context, *consume.Message, Order) (bool, error) { return true, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		consumer, err := rabbitonce.Dial(t.Context(), broker, rabbitonce.Queue{Name: queue}, handler, nil)
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	publish := func(_ context.Context, o Order) {
		if err := published(ch, queue, o.ID, `{"id":"`+o.ID+`","cents":1200}`); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithTimeout(t.Context(), soon)
	defer end()
	order := Order{ID: "o-1", Cents: 1200}

	keys := oncetest.RecordKeys(consume.ProducerID())
	consumer := newConsumer(t, keys.Key) // your consumer, on your broker
	go func() { _ = consumer.Run(ctx) }()
	for range 2 {
		publish(ctx, order) // your producer
	}
	keys.WantOne(ctx, t, 2)

	for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
		if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
