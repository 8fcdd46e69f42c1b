package main

import (
	"crypto/rand"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/internal/testserver"
)

// A message without a queue is an error, and one that is in its queue is not.
func TestPublish(t *testing.T) {
	broker := testserver.URL(t, "rabbitmq")
	queue := "publish." + strings.ToLower(rand.Text())
	if err := publish(t.Context(), broker, queue, "order-7", "{}"); err == nil || !strings.Contains(err.Error(), "start its consumer") {
		t.Errorf("without a queue: %v", err)
	}
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the queue goes with it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := publish(t.Context(), broker, queue, "order-7", "{}"); err != nil {
		t.Error(err)
	}
	if m, ok, err := ch.Get(queue, true); err != nil || !ok || m.MessageId != "order-7" || string(m.Body) != "{}" {
		t.Errorf("%v, %v, %v", m, ok, err)
	}
}
