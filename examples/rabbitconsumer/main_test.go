package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/examples/internal/pgschema"
	"github.com/everonce/everonce/internal/testing/testserver"
)

const soon = 3 * time.Minute

// environment returns the database's URL, with a schema of the test's own, and the broker's.
func environment(t *testing.T) (database, broker string) {
	t.Helper()
	return pgschema.URL(t), testserver.URL(t, "rabbitmq")
}

// Every order is sent three times: there is one invoice for each.
func TestRun(t *testing.T) {
	database, broker := environment(t)
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := "rabbitconsumer." + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
				t.Error(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})

	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(ctx, database, broker, queue) }()

	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background()) //nolint:errcheck // it was only read
	waitForQueue(t, broker, queue, done)
	for range 3 {
		for _, id := range []string{"o-1", "o-2"} {
			waitFor(t, done, func() bool { return published(ch, queue, id, `{"id":"`+id+`","cents":1200}`) == nil })
		}
	}
	waitFor(t, done, func() bool {
		var invoices int
		err := db.QueryRow(t.Context(), `SELECT count(*) FROM invoice`).Scan(&invoices)
		return err == nil && invoices >= 2
	})
	waitFor(t, done, func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Messages == 0
	})
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var invoices, distinct int
	if err := db.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM invoice`).Scan(&invoices, &distinct); err != nil || invoices != 2 || distinct != 2 {
		t.Errorf("%d invoices of %d orders, %v", invoices, distinct, err)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, done <-chan error, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("waited for too long")
		}
	}
}

// waitForQueue waits until a consumer has declared its queue.
func waitForQueue(t *testing.T, broker, queue string, done <-chan error) {
	t.Helper()
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	waitFor(t, done, func() bool {
		ch, err := conn.Channel()
		if err != nil {
			return false
		}
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return errors.Join(err, ch.Close()) == nil && q.Consumers == 1
	})
}

func published(ch *amqp.Channel, queue, id, body string) error {
	return ch.Publish("", queue, true, false, amqp.Publishing{MessageId: id, ContentType: "application/json", Body: []byte(body)})
}
